package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	"polar"
	"polar/gateway"
)

// topology is topology.yaml: what the parts of a deployment are and where.
// The keys of the Python project are accepted; those that mean nothing here
// are listed in warnings and have no effect.
type topology struct {
	DataDir          string         `json:"data_dir"`
	Store            string         `json:"store"`
	Blobs            string         `json:"blobs"`
	ControlToken     string         `json:"control_token"`
	ControlTokenFile string         `json:"control_token_file"`
	Insecure         bool           `json:"insecure"`
	LeaseSeconds     polar.Seconds  `json:"lease_seconds"`
	Rollout          rolloutSection `json:"rollout"`
	Gateway          gatewaySection `json:"gateway"`
}

type rolloutSection struct {
	Host          string `json:"host"`
	Port          int    `json:"port"`
	PublicURL     string `json:"public_url"`
	UnknownFields string `json:"unknown_fields"`

	SaveDir             *string  `json:"save_dir"`
	DispatchPoll        *float64 `json:"dispatch_poll_interval_seconds"`
	CallbackGrace       *float64 `json:"callback_grace_seconds"`
	HTTPMaxConnections  *int     `json:"http_max_connections"`
	HTTPMaxKeepalive    *int     `json:"http_max_keepalive_connections"`
	CleanupConcurrency  *int     `json:"cleanup_max_concurrency"`
	CleanupAttempts     *int     `json:"cleanup_max_attempts"`
	CleanupRetryBackoff *float64 `json:"cleanup_retry_backoff_seconds"`
}

type gatewaySection struct {
	AllowedHostPaths []string      `json:"allowed_host_paths"`
	AllowImplicit    bool          `json:"allow_implicit_sessions"`
	HarnessDir       string        `json:"harness_dir"`
	Nodes            []nodeSection `json:"nodes"`

	Heartbeat             *float64       `json:"heartbeat_interval_seconds"`
	RolloutURL            *string        `json:"rollout_server_url"`
	CompletionPersistence map[string]any `json:"completion_persistence"`
}

type nodeSection struct {
	ID             string           `json:"id"`
	Host           string           `json:"host"`
	Port           int              `json:"port"`
	PublicURL      string           `json:"public_url"`
	ModelServed    string           `json:"model_served"`
	Inference      inferenceSection `json:"inference"`
	MaxInit        int              `json:"max_init_workers"`
	MaxRun         int              `json:"max_run_workers"`
	MaxPostrun     int              `json:"max_postrun_workers"`
	ReadyBuffer    int              `json:"ready_buffer"`
	DefaultRuntime *polar.Runtime   `json:"default_runtime"`
}

type inferenceSection struct {
	Engine     string            `json:"engine"`
	BaseURL    string            `json:"base_url"`
	APIKeyEnv  string            `json:"api_key_env"`
	Endpoints  []endpointSection `json:"endpoints"`
	Probe      string            `json:"probe"`
	Scheduler  string            `json:"scheduler"`
	LateSystem string            `json:"late_system"`
}

// defaultTopology is what `polar serve` runs without a file.
func defaultTopology() topology {
	return topology{
		DataDir:      "./polar-data",
		LeaseSeconds: 15,
		Rollout:      rolloutSection{Host: "127.0.0.1", Port: 8080, UnknownFields: "error"},
	}
}

func defaultNode() nodeSection {
	return nodeSection{
		Host: "127.0.0.1", Port: 8100, MaxInit: 4, MaxRun: 2, MaxPostrun: 4,
		Inference: inferenceSection{Engine: "vllm", BaseURL: "http://127.0.0.1:8000", Probe: "require"},
	}
}

// loadTopology reads a file over the defaults. Errors name the file and the key.
func loadTopology(path string) (topology, error) {
	t := defaultTopology()
	if path == "" {
		t.Gateway.Nodes = []nodeSection{defaultNode()}
		return t, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return t, usagef("read config: %w", err)
	}
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return t, usagef("%s: not valid YAML: %s", path, firstLine(err))
	}
	if strings.TrimSpace(string(asJSON)) == "null" {
		asJSON = []byte("{}")
	}
	if err := polar.DecodeStrict(asJSON, &t); err != nil {
		return t, usagef("%s: %w", path, err)
	}
	for i := range t.Gateway.Nodes {
		t.Gateway.Nodes[i] = t.Gateway.Nodes[i].overDefaults()
	}
	if len(t.Gateway.Nodes) == 0 {
		t.Gateway.Nodes = []nodeSection{defaultNode()}
	}
	if err := t.validate(); err != nil {
		return t, usagef("%s: %w", path, err)
	}
	return t, nil
}

func (n nodeSection) overDefaults() nodeSection {
	d := defaultNode()
	pick := func(v, d int) int {
		if v == 0 {
			return d
		}
		return v
	}
	pickString := func(v, d string) string {
		if v == "" {
			return d
		}
		return v
	}
	n.Host = pickString(n.Host, d.Host)
	n.Port = pick(n.Port, d.Port)
	n.MaxInit = pick(n.MaxInit, d.MaxInit)
	n.MaxRun = pick(n.MaxRun, d.MaxRun)
	n.MaxPostrun = pick(n.MaxPostrun, d.MaxPostrun)
	n.Inference.Engine = pickString(n.Inference.Engine, d.Inference.Engine)
	n.Inference.BaseURL = pickString(n.Inference.BaseURL, d.Inference.BaseURL)
	n.Inference.Probe = pickString(n.Inference.Probe, d.Inference.Probe)
	return n
}

func (t topology) validate() error {
	switch t.Rollout.UnknownFields {
	case "error", "warn":
	default:
		return polar.Invalid("rollout.unknown_fields", "%q is not known; known: error, warn", t.Rollout.UnknownFields)
	}
	if !(t.LeaseSeconds > 0) {
		return polar.Invalid("lease_seconds", "must be above 0")
	}
	if t.ControlToken != "" && t.ControlTokenFile != "" {
		return polar.Invalid("control_token", "give either control_token or control_token_file")
	}
	if s := t.Store; s != "" && !strings.HasPrefix(s, "sqlite://") {
		return polar.Invalid("store", "%q is not known; known: sqlite://PATH", s)
	}
	if s := t.Blobs; s != "" && !strings.HasPrefix(s, "file://") {
		return polar.Invalid("blobs", "%q is not known; known: file://PATH", s)
	}
	for i, n := range t.Gateway.Nodes {
		at := fmt.Sprintf("gateway.nodes[%d].", i)
		switch n.Inference.Probe {
		case "require", "warn", "off":
		default:
			return polar.Invalid(at+"inference.probe", "%q is not known; known: require, warn, off", n.Inference.Probe)
		}
		switch n.Inference.Scheduler {
		case "", "none":
		default:
			return polar.Invalid(at+"inference.scheduler", "%q is not known; known: none", n.Inference.Scheduler)
		}
		switch n.Inference.LateSystem {
		case "", gateway.LateSystemKeep, gateway.LateSystemUser:
		default:
			return polar.Invalid(at+"inference.late_system", "%q is not known; known: keep, user", n.Inference.LateSystem)
		}
		for k, e := range n.Inference.Endpoints {
			if e.URL == "" {
				return polar.Invalid(fmt.Sprintf("%sinference.endpoints[%d].url", at, k), "missing")
			}
		}
		if n.ID != "" && !polar.ValidID(n.ID) {
			return polar.Invalid(at+"id", "%q may have letters, digits, '_', '.' and '-' only", n.ID)
		}
		if n.MaxInit < 1 || n.MaxRun < 1 || n.MaxPostrun < 1 || n.ReadyBuffer < 0 {
			return polar.Invalid(at+"max_run_workers", "worker counts must be 1 or more")
		}
	}
	return nil
}

// warnings lists the keys that were given and have no effect here.
func (t topology) warnings() []string {
	var out []string
	note := func(given bool, key, why string) {
		if given {
			out = append(out, key+" has no effect: "+why)
		}
	}
	r, g := t.Rollout, t.Gateway
	note(r.PublicURL != "", "rollout.public_url", "nobody needs to be told where the server is: nodes ask it, and results are fetched or pushed")
	note(r.SaveDir != nil, "rollout.save_dir", "results are always kept, in data_dir")
	note(r.DispatchPoll != nil, "rollout.dispatch_poll_interval_seconds", "nodes wait for work, nothing polls")
	note(r.CallbackGrace != nil, "rollout.callback_grace_seconds", "a silent node is noticed by its lease, see lease_seconds")
	note(r.HTTPMaxConnections != nil || r.HTTPMaxKeepalive != nil, "rollout.http_max_connections", "nodes pull their work")
	note(r.CleanupConcurrency != nil || r.CleanupAttempts != nil || r.CleanupRetryBackoff != nil, "rollout.cleanup_*", "nodes clean up after themselves")
	note(g.Heartbeat != nil, "gateway.heartbeat_interval_seconds", "leases are renewed three times in lease_seconds")
	note(g.RolloutURL != nil, "gateway.rollout_server_url", "polar serve runs both in one process")
	note(g.CompletionPersistence != nil, "gateway.completion_persistence", "every call is always stored before its answer ends")
	return out
}

// token returns the control token, reading its file if it is in one.
func (t topology) token() (string, error) {
	if t.ControlTokenFile == "" {
		return t.ControlToken, nil
	}
	data, err := os.ReadFile(t.ControlTokenFile)
	if err != nil {
		return "", usagef("control_token_file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", usagef("control_token_file: %s is empty", t.ControlTokenFile)
	}
	return token, nil
}

func (t topology) storePath() string {
	if p, ok := strings.CutPrefix(t.Store, "sqlite://"); ok {
		return p
	}
	return filepath.Join(t.DataDir, "polar.db")
}

func (t topology) blobPath() string {
	if p, ok := strings.CutPrefix(t.Blobs, "file://"); ok {
		return p
	}
	return filepath.Join(t.DataDir, "blobs")
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// readTaskFile reads a task in JSON or YAML and returns it as JSON.
func readTaskFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("%s: no such file", path)
	}
	if err != nil {
		return nil, usagef("read task: %w", err)
	}
	return taskJSON(path, data)
}

func taskJSON(path string, data []byte) ([]byte, error) {
	if strings.HasSuffix(path, ".json") {
		return data, nil
	}
	out, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, usagef("%s: not valid YAML: %s", path, firstLine(err))
	}
	return out, nil
}
