package harness

import (
	"testing"

	"polar"
)

func TestBlameFor(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]polar.Blame{
		// as the CLIs say it
		`503: {"message":"engine answered 500","type":"server_error","param":null,"code":"engine_failed"}`: polar.BlameService,
		`503 {"type":"error","error":{"type":"api_error"}}`:                                                polar.BlameService,
		"HTTP 503: engine answered 500: simulated fault":                                                   polar.BlameService,
		"unexpected status 503 Service Unavailable: engine answered 500":                                   polar.BlameService,
		"exceeded retry limit, last status: 429 Too Many Requests":                                         polar.BlameService,
		"API Error: 529 overloaded":                                                                        polar.BlameService,
		"API Error: Request rejected (429) · engine: simulated fault":                                      polar.BlameService,
		"[API Error: 401 status code (no body)]":                                                           polar.BlameService,
		`got status: UNAVAILABLE. {"error":{"code":503,"message":"down"}}`:                                 polar.BlameService,
		"HTTP 401: the API key is not that of a session":                                                   polar.BlameService,
		"server_error: engine http://127.0.0.1:8000: engine cut the stream: unexpected EOF":                polar.BlameService,
		"stream disconnected before completion":                                                            polar.BlameService,
		"Cannot connect to API: Unable to connect. Is the computer able to access the url?":                polar.BlameService,
		"Connection error.":                polar.BlameService,
		"Request timed out.":               polar.BlameService,
		"terminated":                       polar.BlameService,
		"connect ECONNREFUSED 127.0.0.1:1": polar.BlameService,
		"503":                              polar.BlameService,

		// the agent's own doing
		`429: {"message":"the session's budget of 1 calls is spent","type":"insufficient_quota","param":null,"code":"insufficient_quota"}`: polar.BlameAgent,
		"HTTP 429: the session's budget of 500 completion tokens is spent":                                                                 polar.BlameAgent,
		"Quota exceeded. Check your plan and billing details.":                                                                             polar.BlameAgent,
		"Prompt is too long": polar.BlameAgent,
		`400: {"message":"This model's maximum context length is 500 tokens. Please reduce the length of the messages.","code":"context_length_exceeded"}`: polar.BlameAgent,
		"The input token count (503) exceeds the maximum number of tokens allowed (429).":                                                                  polar.BlameAgent,
		"400: tools[500].name is missing":                   polar.BlameAgent,
		"the answer has 500 tokens, at most 429 were asked": polar.BlameAgent,
		"500 tokens were asked for":                         polar.BlameAgent,
		"read 512 bytes of 503 lines":                       polar.BlameAgent,
		"the command was terminated by a signal":            polar.BlameAgent,
		"Reached maximum number of turns (500)":             polar.BlameAgent,
		"Unexpected server error. Check server logs":        polar.BlameAgent,
		"": polar.BlameAgent,
	} {
		if got := blameFor(message); got != want {
			t.Errorf("blameFor(%q) = %s, want %s", message, got, want)
		}
	}
}
