package sim

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	yamlparser "github.com/goccy/go-yaml/parser"
)

// Config says how a simulated inference server behaves. Defaults is where to
// start from. In YAML the keys are as tagged, the rules under "rules" and the
// faults under "faults".
type Config struct {
	// Engine is whose wire is spoken: vllm or sglang.
	Engine string `yaml:"engine"`
	// SGLangStyle is the version whose way of giving token ids is followed:
	//   - v0.5.10: none on chat, and no tokens of a conversation from /tokenize;
	//   - v0.5.12: none on chat;
	//   - v0.5.13: prompt ids and meta_info, of a chat in one piece only;
	//   - v0.5.17: also token_ids;
	//   - v0.5.18: response_token_ids in their place;
	//   - next: also sglext at the end of a stream.
	SGLangStyle string `yaml:"sglang_style"`
	// IncrementalStreaming lets the events of SGLang's /generate hold what is new
	// instead of everything so far.
	IncrementalStreaming bool `yaml:"incremental_streaming"`
	// NoParsers is an SGLang server started without a parser for reasoning and
	// tool calls: both stay in the text.
	NoParsers bool `yaml:"no_parsers"`
	// Workers are the URLs that an SGLang router has behind it. A server with
	// workers loses the ids of chats, as routers do.
	Workers []string `yaml:"workers"`
	// NoIDs is a vLLM server from before there were token ids.
	NoIDs bool `yaml:"no_ids"`
	// TrimStop leaves the stop token out of "ids" or of "logprobs"; "" of neither.
	TrimStop string `yaml:"trim_stop"`
	// ImageTokens is how many tokens of a prompt stand for an image.
	ImageTokens int `yaml:"image_tokens"`
	// CacheReport tells with the usage how much of a prompt came before.
	CacheReport bool `yaml:"cache_report"`
	// Seed decides everything that is random.
	Seed uint64 `yaml:"seed"`
	// Model is the name served. With StrictModel a request for another is
	// refused; otherwise it is answered under the name it asked for.
	Model       string `yaml:"model"`
	StrictModel bool   `yaml:"strict_model"`
	// SuccessRate is how often the built-in policy solves a demo task.
	SuccessRate float64 `yaml:"success_rate"`
	// Noncanonical is the share of words that are sampled with other tokens than
	// the tokenizer would give them.
	Noncanonical float64 `yaml:"noncanonical"`
	// StripReasoning leaves reasoning from before the last user message out of
	// prompts.
	StripReasoning bool `yaml:"strip_reasoning"`
	// ParseSpecial lets special tokens written in messages be special tokens.
	ParseSpecial bool `yaml:"parse_special"`
	// MissingLogprobs is the share of tokens whose logprob is not known.
	MissingLogprobs float64 `yaml:"missing_logprobs"`
	// TTFT is the time to the first token, TokensPerSecond the speed after it; 0
	// is as fast as it can.
	TTFT            time.Duration `yaml:"ttft"`
	TokensPerSecond float64       `yaml:"tokens_per_second"`
	// ChunkTokens is how many tokens a chunk of a stream has.
	ChunkTokens int `yaml:"chunk_tokens"`
	// ContextLimit is how many tokens a prompt and its answer may have together;
	// 0 means no limit.
	ContextLimit int `yaml:"context_limit"`
	// MaxBodyBytes bounds a request.
	MaxBodyBytes int64 `yaml:"max_body_bytes"`
	// KeepCalls is how many calls /sim/calls remembers.
	KeepCalls int     `yaml:"keep_calls"`
	Faults    []Fault `yaml:"faults"`
	// Rules are tried before those of the built-in policy.
	Rules []Rule `yaml:"rules"`
}

// The engines whose wires are spoken.
const (
	EngineVLLM   = "vllm"
	EngineSGLang = "sglang"
)

const (
	trimIDs      = "ids"
	trimLogprobs = "logprobs"
)

// Defaults is the configuration of a server that was told nothing.
func Defaults() Config {
	return Config{
		Engine:       EngineVLLM,
		SGLangStyle:  "v0.5.18",
		ImageTokens:  64,
		Seed:         1,
		Model:        "sim",
		SuccessRate:  0.7,
		ChunkTokens:  1,
		ContextLimit: 131072,
		MaxBodyBytes: 64 << 20,
		KeepCalls:    256,
	}
}

//go:embed policy.yaml
var builtinPolicy []byte

// LoadFile reads a YAML file of settings, rules and faults over the defaults.
// A key that is not known is an error.
func LoadFile(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read policy: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("read policy %s: %w", path, err)
	}
	return c, nil
}

// Parse is LoadFile of a file's content. It checks all that New does.
func Parse(data []byte) (Config, error) {
	var content any
	if err := yaml.Unmarshal(data, &content); err == nil && content == nil {
		return Defaults(), nil // which decoding nothing would clear
	}
	c, err := decodeFile(data)
	if err != nil {
		return Config{}, err
	}
	_, err = c.policy()
	return c, err
}

func decodeFile(data []byte) (Config, error) {
	c := Defaults()
	err := yaml.UnmarshalWithOptions(data, &c, yaml.Strict())
	if err == nil {
		return c, nil
	}
	text := strings.Join(strings.Fields(yaml.FormatError(err, false, false)), " ")
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil {
		text = element(data, at.GetToken().Position.Line) + text
	}
	return Config{}, errors.New(text)
}

// element names the element of a list at the top of a YAML file that a line
// belongs to, such as "rules[2]: ", or is "".
func element(data []byte, line int) string {
	file, err := yamlparser.ParseBytes(data, 0)
	if err != nil || len(file.Docs) == 0 {
		return ""
	}
	top, ok := file.Docs[0].Body.(*ast.MappingNode)
	if !ok {
		return ""
	}
	name := ""
	for _, entry := range top.Values {
		list, ok := entry.Value.(*ast.SequenceNode)
		if !ok || entry.Key.GetToken().Position.Line > line {
			continue
		}
		for i, node := range list.Values {
			if node.GetToken().Position.Line <= line {
				name = fmt.Sprintf("%s[%d]: ", entry.Key.GetToken().Value, i)
			}
		}
	}
	return name
}

// policy checks the configuration and makes its own rules ready.
func (c Config) policy() (policy, error) {
	for _, s := range []struct {
		field string
		value float64
	}{{"success_rate", c.SuccessRate}, {"noncanonical", c.Noncanonical}, {"missing_logprobs", c.MissingLogprobs}} {
		if !(s.value >= 0 && s.value <= 1) {
			return policy{}, fmt.Errorf("%s: is %v, must be from 0 to 1", s.field, s.value)
		}
	}
	switch {
	case c.Engine != EngineVLLM && c.Engine != EngineSGLang:
		return policy{}, fmt.Errorf("engine: is %q, must be vllm or sglang", c.Engine)
	case c.Engine == EngineSGLang && !slices.Contains(sglangStyles(), c.SGLangStyle):
		return policy{}, fmt.Errorf("sglang_style: is %q, must be one of %s", c.SGLangStyle, strings.Join(sglangStyles(), ", "))
	case c.Engine == EngineVLLM && (c.IncrementalStreaming || c.NoParsers || len(c.Workers) > 0):
		return policy{}, fmt.Errorf("engine: incremental_streaming, no_parsers and workers have a meaning for sglang only")
	case c.Engine == EngineSGLang && c.NoIDs:
		return policy{}, fmt.Errorf("no_ids: has a meaning for vllm only; sglang has sglang_style v0.5.10")
	case c.TrimStop != "" && c.TrimStop != trimIDs && c.TrimStop != trimLogprobs:
		return policy{}, fmt.Errorf("trim_stop: is %q, must be ids or logprobs", c.TrimStop)
	case c.ImageTokens < 0:
		return policy{}, fmt.Errorf("image_tokens: must not be below 0")
	case c.TTFT < 0:
		return policy{}, fmt.Errorf("ttft: must not be below 0")
	case !(c.TokensPerSecond >= 0):
		return policy{}, fmt.Errorf("tokens_per_second: must not be below 0")
	case c.ChunkTokens < 1:
		return policy{}, fmt.Errorf("chunk_tokens: must be above 0")
	case c.ContextLimit < 0:
		return policy{}, fmt.Errorf("context_limit: must not be below 0")
	case c.Model == "":
		return policy{}, fmt.Errorf("model: missing")
	case c.MaxBodyBytes < 1:
		return policy{}, fmt.Errorf("max_body_bytes: must be above 0")
	case c.KeepCalls < 0:
		return policy{}, fmt.Errorf("keep_calls: must not be below 0")
	}
	for i, f := range c.Faults {
		if err := f.validate(false); err != nil {
			return policy{}, fmt.Errorf("faults[%d].%w", i, err)
		}
	}
	return compilePolicy(c.Rules)
}

// builtin is the built-in policy, made ready once.
var builtin = sync.OnceValues(func() (policy, error) {
	c, err := decodeFile(builtinPolicy)
	if err != nil {
		return policy{}, fmt.Errorf("built-in policy: %w", err)
	}
	p, err := compilePolicy(c.Rules)
	if err != nil {
		return policy{}, fmt.Errorf("built-in policy: %w", err)
	}
	return p, nil
})
