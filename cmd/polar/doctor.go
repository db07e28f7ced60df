package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"polar/backend"
	"polar/harness"
	"polar/kit"
)

// finding is one thing that works here, or does not.
type finding struct {
	What   string         `json:"what"`
	OK     bool           `json:"ok"`
	Detail string         `json:"detail"`
	Probe  *backend.Probe `json:"probe,omitempty"`
}

func doctorCommand() *cobra.Command {
	var (
		config, dataDir, engine, harnessDir string
		engineURLs                          []string
		asJSON                              bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what works here: engines, sandboxes, harnesses, disk",
		Long: `Say what works here. Engines are asked with a real call of one token, to see
whether prompt ids, sampled ids and logprobs come back and whether they stream.
It exits 1 if something that polar serve needs does not work.`,
		Example: `  polar doctor --engine-url http://127.0.0.1:8000
  polar doctor -c topology.yaml --json`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := loadTopology(config)
			if err != nil {
				return err
			}
			set := cmd.Flags().Changed
			if set("data-dir") {
				t.DataDir = dataDir
			}
			if set("harness-dir") || t.Gateway.HarnessDir == "" {
				t.Gateway.HarnessDir = harnessDir
			}
			for i := range t.Gateway.Nodes {
				if set("engine") {
					t.Gateway.Nodes[i].Inference.Engine = engine
				}
				if set("engine-url") {
					t.Gateway.Nodes[i].Inference.setURLs(engineURLs)
				}
			}
			found, err := examine(cmd.Context(), t)
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(found)
			} else {
				newPainter(cmd.OutOrStdout()).findings(found)
			}
			if err == nil && slices.ContainsFunc(found, func(f finding) bool { return !f.OK }) {
				err = errQuiet
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&config, "config", "c", "", "topology.yaml")
	f.StringVar(&dataDir, "data-dir", "./polar-data", "where tasks, calls and results are kept")
	f.StringVar(&engine, "engine", "vllm", "kind of inference engine: "+engineKinds())
	f.StringArrayVar(&engineURLs, "engine-url", nil, "where an engine is; may be repeated (default http://127.0.0.1:8000)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	kitFlag(cmd, &harnessDir)
	return cmd
}

func engineKinds() string { return strings.Join(builtin("", nil).engines.Kinds(), ", ") }

func examine(ctx context.Context, t topology) ([]finding, error) {
	found := []finding{examineDisk(t.DataDir), examineShell()}
	kinds := builtin("", nil)
	for _, n := range t.Gateway.Nodes {
		for _, e := range n.Inference.endpoints() {
			one := n.Inference
			one.Endpoints = []endpointSection{e}
			engine, err := openEngine(kinds.engines, one)
			if err != nil {
				return nil, err
			}
			found = append(found, examineEngine(ctx, engine, n.Inference.Engine, e.URL))
			_ = engine.Close()
		}
	}
	kits, err := openKits(t.Gateway.HarnessDir)
	if err != nil {
		return nil, err
	}
	return append(found, examineHarnesses(kits, kinds.clis)...), nil
}

// examineHarnesses says which CLIs are installed. None has to be.
func examineHarnesses(kits kit.Folder, clis []harness.CLI) []finding {
	npm := finding{What: "npm", OK: true, Detail: "not on the PATH; polar harness install needs it for the CLIs that come from npm: install Node.js"}
	if path, err := exec.LookPath("npm"); err == nil {
		npm.Detail = path
	}
	found := []finding{npm}
	for _, c := range clis {
		f := finding{What: "harness " + c.Name, OK: true}
		if made, err := kits.Find(c.Product, ""); err == nil {
			f.Detail = made.Version + " at " + made.Dir
		} else {
			f.Detail = err.Error()
		}
		found = append(found, f)
	}
	return found
}

func examineEngine(ctx context.Context, engine backend.Engine, kind, url string) finding {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	f := finding{What: fmt.Sprintf("engine %s (%s)", url, kind)}
	p, err := engine.Probe(ctx)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.Probe = &p
	facts := []string{"model " + p.Model}
	if p.Version != "" {
		facts = append(facts, "version "+p.Version)
	}
	if p.MaxContext > 0 {
		facts = append(facts, fmt.Sprintf("context %d", p.MaxContext))
	}
	f.OK = true
	if missing := p.Missing(); missing != "" {
		facts = append(facts, "no "+missing+": its calls are recorded and not trainable")
		f.OK = kind == "openai" // it never has them
	} else {
		facts = append(facts, "prompt ids, sampled ids and logprobs", map[backend.StreamsIDs]string{
			backend.StreamsYes: "ids stream", backend.StreamsAtEnd: "ids come at the end of the stream", backend.StreamsNo: "ids do not stream: streams are synthesised",
		}[p.StreamsIDs])
	}
	if p.Tokenizer {
		facts = append(facts, "counts tokens")
	}
	f.Detail = strings.Join(facts, ", ")
	return f
}

// examineDisk looks at the data folder, or at the nearest one above it that is
// there, and leaves nothing in it.
func examineDisk(dataDir string) finding {
	f := finding{What: "disk at " + dataDir}
	dir, err := filepath.Abs(dataDir)
	for err == nil {
		if _, err = os.Stat(dir); err == nil || !errors.Is(err, os.ErrNotExist) {
			break
		}
		dir, err = filepath.Dir(dir), nil
	}
	var free syscall.Statfs_t
	if err == nil {
		err = syscall.Statfs(dir, &free)
	}
	var took time.Duration
	if err == nil {
		took, err = timeSync(dir)
	}
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	gigabytes := float64(free.Bavail) * float64(free.Bsize) / 1e9
	f.OK = gigabytes >= 1
	f.Detail = fmt.Sprintf("%.1f GB free, a durable write takes %s", gigabytes, took.Round(10*time.Microsecond))
	if !f.OK {
		f.Detail += "; make room: results and calls are kept there"
	}
	return f
}

func timeSync(dir string) (time.Duration, error) {
	file, err := os.CreateTemp(dir, ".polar-doctor-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // best effort, the name is odd enough
	defer file.Close()           //nolint:errcheck // nothing in it counts
	start := time.Now()
	if _, err := file.Write(make([]byte, 4096)); err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

func examineShell() finding {
	f := finding{What: "local sandbox, harnesses mini and shell"}
	path, err := exec.LookPath("bash")
	if err != nil {
		f.Detail = "bash is not on the PATH; install it"
		return f
	}
	f.OK, f.Detail = true, "bash at "+path
	return f
}

func (p painter) findings(found []finding) {
	for _, f := range found {
		mark := p.paint(green, "ok    ")
		if !f.OK {
			mark = p.paint(red, "FAILED")
		}
		p.printf("%s  %s: %s\n", mark, f.What, f.Detail)
	}
}
