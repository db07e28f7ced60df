package responses

import (
	"encoding/json"
	"strconv"

	"polar/llm"
	"polar/protocol/openai"
	"polar/rawjson"
)

// echoed are the settings that a response repeats, with what they are where the
// harness said nothing. The prompt is not among them: instructions and tools
// would be sent back thrice in each answer, and those who read a response know
// what they asked.
var echoed = rawjson.Object{
	{Key: "max_output_tokens", Value: json.RawMessage("null")},
	{Key: "metadata", Value: json.RawMessage("{}")},
	{Key: "parallel_tool_calls", Value: json.RawMessage("true")},
	{Key: "previous_response_id", Value: json.RawMessage("null")},
	{Key: "reasoning", Value: json.RawMessage(`{"effort":null,"summary":null}`)},
	{Key: "service_tier", Value: json.RawMessage(`"default"`)},
	{Key: "store", Value: json.RawMessage("false")},
	{Key: "temperature", Value: json.RawMessage("null")},
	{Key: "text", Value: json.RawMessage(`{"format":{"type":"text"}}`)},
	{Key: "tool_choice", Value: json.RawMessage(`"auto"`)},
	{Key: "top_logprobs", Value: json.RawMessage("0")},
	{Key: "top_p", Value: json.RawMessage("null")},
	{Key: "truncation", Value: json.RawMessage(`"disabled"`)},
	{Key: "user", Value: json.RawMessage("null")},
}

// outcome is how an answer ended, or that it has not.
type outcome struct {
	status string
	// reason is why an answer is incomplete.
	reason string
	// failure is why there is no whole answer.
	failure *llm.Error
}

func (o outcome) event() string { return "response." + o.status }

var inProgress = outcome{status: "in_progress"}

// outcomeOf says how an answer ended, in the words of the format.
func outcomeOf(finish string) outcome {
	switch finish {
	case llm.FinishLength:
		return outcome{status: "incomplete", reason: "max_output_tokens"}
	case llm.FinishFilter:
		return outcome{status: "incomplete", reason: "content_filter"}
	case llm.FinishAbort:
		return outcome{status: "failed", failure: llm.Errorf(llm.EngineFailed, "the answer was cut off before its end")}
	}
	return outcome{status: "completed"}
}

// failureCode is the code of an answer that failed. These few are told apart by
// those who read it.
func failureCode(kind llm.ErrorKind) string {
	switch _, code := openai.Words(kind); code {
	case "context_length_exceeded", "insufficient_quota", "rate_limit_exceeded":
		return code
	}
	return "server_error"
}

// appendResponse writes the response object with the items that are whole.
func (a *answer) appendResponse(dst []byte, o outcome) []byte {
	dst = append(dst, `{"id":`...)
	dst = rawjson.AppendString(dst, responsePrefix+a.base)
	dst = append(dst, `,"object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, a.created, 10)
	dst = append(dst, `,"status":"`...)
	dst = append(dst, o.status...)
	dst = append(dst, `","background":false,"error":`...)
	if o.failure != nil {
		dst = append(dst, `{"code":"`...)
		dst = append(dst, failureCode(o.failure.Kind)...)
		dst = append(dst, `","message":`...)
		dst = rawjson.AppendString(dst, o.failure.Error())
		dst = append(dst, '}')
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"incomplete_details":`...)
	if o.reason != "" {
		dst = append(dst, `{"reason":"`...)
		dst = append(dst, o.reason...)
		dst = append(dst, `"}`...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"instructions":null,"model":`...)
	dst = rawjson.AppendString(dst, a.model)
	dst = append(dst, `,"output":[`...)
	first := true
	for _, it := range a.items {
		if it.whole == nil {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, it.whole...)
	}
	dst = append(dst, `],"tools":[]`...)
	for _, e := range echoed {
		dst = append(dst, ',')
		dst = rawjson.AppendString(dst, e.Key)
		dst = append(dst, ':')
		if said := a.echo.Get(e.Key); said != nil {
			dst = append(dst, said...)
		} else {
			dst = append(dst, e.Value...)
		}
	}
	dst = append(dst, `,"usage":`...)
	if o == inProgress || o.failure != nil && a.usage == nil {
		dst = append(dst, "null"...)
	} else {
		dst = a.appendUsage(dst)
	}
	return append(dst, '}')
}

// appendUsage writes the usage whole: clients of an answer that did not fail
// count on it.
func (a *answer) appendUsage(dst []byte) []byte {
	var u llm.Usage
	if a.usage != nil {
		u = *a.usage
	}
	for _, m := range []struct {
		before string
		count  int
	}{
		{`{"input_tokens":`, u.PromptTokens},
		{`,"input_tokens_details":{"cached_tokens":`, u.CachedTokens},
		{`},"output_tokens":`, u.CompletionTokens},
		{`,"output_tokens_details":{"reasoning_tokens":`, min(a.reasoned, u.CompletionTokens)},
		{`},"total_tokens":`, u.PromptTokens + u.CompletionTokens},
	} {
		dst = strconv.AppendInt(append(dst, m.before...), int64(m.count), 10)
	}
	return append(dst, '}')
}
