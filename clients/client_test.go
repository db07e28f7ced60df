package clients_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
)

// client is a provider's client as these tests use it. What differs between
// providers stays behind it; what is compared comes out in one shape.
type client struct {
	// name is the package's, wire the format it speaks.
	name, wire string
	open       func(t *testing.T, to endpoint) conversation
}

// endpoint is where a client is pointed and how it is set up.
type endpoint struct {
	// URL is the gateway's root, Key the session's.
	URL string `json:"url"`
	Key string `json:"key"`
	// Stream is whether answers are asked for as streams, Retries how often a
	// client asks again that does so unless it is told not to; Google's do not.
	Stream  bool `json:"stream"`
	Retries int  `json:"retries"`
	// Previous is whether earlier turns are named and not sent again, which only
	// Responses can.
	Previous bool `json:"previous"`
}

// conversation is a conversation that the client keeps in its own types, and
// sends back as it got it. Where the client refuses or was refused, the error
// is a *refusal.
type conversation interface {
	// ask says something to the model.
	ask(ctx context.Context, q question) (answer, error)
	// give answers the tool calls of the last answer, in their order.
	give(ctx context.Context, results []string) (answer, error)
	// count asks how many tokens the prompt of a question would have.
	count(ctx context.Context, q question) (int, error)
	// models lists what is served.
	models(ctx context.Context) ([]string, error)
}

// question is what is said to the model. System and Tools of a conversation's
// first question are those of all.
type question struct {
	Text   string `json:"text"`
	System string `json:"system,omitempty"`
	// Image is a PNG, in base64.
	Image     string `json:"image,omitempty"`
	Tools     bool   `json:"tools,omitempty"`
	MaxTokens int    `json:"max_tokens,omitempty"`
	// LeaveAfter is after how many pieces of text the client goes away.
	LeaveAfter int `json:"leave_after,omitempty"`
}

// answer is what a client read.
type answer struct {
	Text      string `json:"text"`
	Reasoning string `json:"reasoning"`
	Calls     []call `json:"calls"`
	// Finish is the format's own word.
	Finish string `json:"finish"`
	// In and Out are the tokens of the prompt and of the answer.
	In  int `json:"in"`
	Out int `json:"out"`
}

// call is a tool call. The arguments are JSON, as the client shows them.
type call struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// refusal is an error as a client shows it.
type refusal struct {
	Status int `json:"status"`
	// Type and Code are the provider's words, where it has them.
	Type       string `json:"type"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	RetryAfter string `json:"retry_after"`
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%d %s %s: %s", r.Status, r.Type, r.Code, r.Message)
}

// tool is a function on offer.
type tool struct {
	name, description string
	properties        map[string]any
	required          []string
}

// tools are what the model is offered.
func tools() []tool {
	return []tool{
		{
			"get_weather", "Says what the weather <will> be.",
			map[string]any{
				"city": map[string]any{"type": "string"}, "days": map[string]any{"type": "integer"},
				"exact": map[string]any{"type": "number"},
			},
			[]string{"city"},
		},
		{"get_time", "Says what time it is.", map[string]any{"zone": map[string]any{"type": "string"}}, []string{"zone"}},
	}
}

func (t tool) schema() map[string]any {
	return map[string]any{"type": "object", "properties": t.properties, "required": t.required}
}

// sameJSON reports whether two texts are the same JSON value. Clients that
// show arguments as objects do not keep the spelling.
func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	x1, _ := json.Marshal(x)
	y1, _ := json.Marshal(y)
	return string(x1) == string(y1)
}
