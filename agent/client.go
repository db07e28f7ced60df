package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"polar/llm"
	"polar/rawjson"
	"polar/sse"
)

// client makes Chat Completions calls.
type client struct {
	http    *http.Client
	url     string
	key     string
	stream  bool
	retries int
	backoff time.Duration
}

const (
	maxBackoff    = 30 * time.Second
	maxErrorBytes = 64 << 10
	maxReplyBytes = 256 << 20
)

// reply is one answer of the model.
type reply struct {
	message llm.Message
	finish  string
	// reasoningKey is the name the reasoning came under and goes back under.
	reasoningKey string
}

// callError is a call that failed.
type callError struct {
	err   error
	retry bool
	after time.Duration // what the server asked for, or 0
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// complete makes the call, again and again while the failure may pass: a
// connection that broke, a stream that was cut, an overloaded server.
func (c *client) complete(ctx context.Context, body []byte) (reply, error) {
	for tries := 0; ; tries++ {
		r, err := c.once(ctx, body, tries)
		var failed *callError
		if err == nil || !errors.As(err, &failed) || !failed.retry || tries >= c.retries || ctx.Err() != nil {
			if err != nil && tries > 0 {
				err = fmt.Errorf("after %d tries: %w", tries+1, err)
			}
			return r, err
		}
		wait := min(c.backoff<<min(tries, 16), maxBackoff)
		wait = max(failed.after, wait/2+rand.N(wait/2+1))
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return reply{}, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func (c *client) once(ctx context.Context, body []byte, tries int) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "polar-mini")
	req.Header.Set("X-Stainless-Retry-Count", strconv.Itoa(tries))
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return reply{}, &callError{err: err, retry: true}
	}
	defer func() { _ = res.Body.Close() }() // all that is wanted of it was read
	if res.StatusCode != http.StatusOK {
		return reply{}, refusal(res)
	}
	if c.stream && strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return readStream(res.Body)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxReplyBytes))
	if err != nil {
		return reply{}, &callError{err: fmt.Errorf("read the answer: %w", err), retry: true}
	}
	return readWhole(data)
}

// refusal is the error of an answer that is not 200. The x-should-retry header
// has the last word on whether to try again.
func refusal(res *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBytes)) // a part of it will do
	e := &callError{err: fmt.Errorf("%s: %s", res.Status, errorMessage(body))}
	switch s := res.StatusCode; {
	case res.Header.Get("X-Should-Retry") == "false":
	case res.Header.Get("X-Should-Retry") == "true", s == 408, s == 409, s == 429, s >= 500:
		e.retry = true
	}
	if s, err := strconv.ParseFloat(res.Header.Get("Retry-After"), 64); err == nil && s > 0 {
		e.after = min(time.Duration(s*float64(time.Second)), maxBackoff)
	}
	return e
}

// errorMessage is the message of an error body, on one line.
func errorMessage(body []byte) string {
	text := string(body)
	if o, err := rawjson.ParseObject(body); err == nil {
		if inner, err := rawjson.ParseObject(o.Get("error")); err == nil {
			o = inner
		}
		if s, err := rawjson.String(o.Get("message")); err == nil {
			text = s
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "") + "…"
	}
	return text
}

// readStream gathers the chunks of an answer. A stream that ends without a
// finish reason was cut.
func readStream(body io.Reader) (reply, error) {
	var (
		r         reply
		collector llm.Collector
		events    = sse.NewReader(body, sse.Config{})
	)
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF) && r.finish != "":
			r.message = collector.Reply().Message
			return r, nil
		case errors.Is(err, io.EOF):
			return r, &callError{err: errors.New("the stream was cut off"), retry: true}
		case err != nil:
			return r, &callError{err: fmt.Errorf("read the stream: %w", err), retry: true}
		case string(e.Data) == "[DONE]" && r.finish != "":
			r.message = collector.Reply().Message
			return r, nil
		case string(e.Data) == "[DONE]":
			return r, &callError{err: errors.New("the stream ended without a finish reason"), retry: true}
		}
		event, err := r.chunk(e.Data)
		if err != nil {
			return r, err
		}
		collector.Add(event)
	}
}

// chunk reads one chunk of a stream.
func (r *reply) chunk(data []byte) (llm.Event, error) {
	var out llm.Event
	err := rawjson.EachMember(data, func(key string, value []byte) error {
		switch {
		case key == "error" && !rawjson.IsNull(value):
			return &callError{err: fmt.Errorf("error in the stream: %s", errorMessage(data)), retry: true}
		case key != "choices":
			return nil
		}
		return rawjson.EachElement(value, func(choice []byte) error { return r.choice(choice, &out) })
	})
	var failed *callError
	if err != nil && !errors.As(err, &failed) {
		err = &callError{err: fmt.Errorf("read a chunk: %w", err), retry: true}
	}
	return out, err
}

func (r *reply) choice(data []byte, out *llm.Event) error {
	return rawjson.EachMember(data, func(key string, value []byte) (err error) {
		if rawjson.IsNull(value) {
			return nil
		}
		switch key {
		case "finish_reason":
			r.finish, err = rawjson.String(value)
		case "delta":
			err = rawjson.EachMember(value, func(key string, value []byte) (err error) {
				if rawjson.IsNull(value) {
					return nil
				}
				switch key {
				case "content":
					out.Text, err = rawjson.String(value)
				case "reasoning", "reasoning_content":
					r.reasoningKey = key
					out.Reasoning, err = rawjson.String(value)
				case "tool_calls":
					err = rawjson.EachElement(value, func(call []byte) error { return callDelta(call, out) })
				}
				return err
			})
		}
		return err
	})
}

func callDelta(data []byte, out *llm.Event) error {
	d := llm.ToolCallDelta{}
	err := rawjson.EachMember(data, func(key string, value []byte) (err error) {
		if rawjson.IsNull(value) {
			return nil
		}
		switch key {
		case "index":
			if d.Index, err = rawjson.Int(value); err == nil && (d.Index < 0 || d.Index > maxToolCalls) {
				err = fmt.Errorf("tool call %d is out of range", d.Index)
			}
		case "id":
			d.ID, err = rawjson.String(value)
		case "function":
			err = rawjson.EachMember(value, func(key string, value []byte) (err error) {
				if rawjson.IsNull(value) {
					return nil
				}
				switch key {
				case "name":
					d.Name, err = rawjson.String(value)
				case "arguments":
					d.Arguments, err = rawjson.String(value)
				}
				return err
			})
		}
		return err
	})
	out.ToolCalls = append(out.ToolCalls, d)
	return err
}

// maxToolCalls bounds what one answer can make us allocate.
const maxToolCalls = 1000

// readWhole reads an answer that came in one piece.
func readWhole(data []byte) (reply, error) {
	broken := func(err error) (reply, error) {
		return reply{}, &callError{err: fmt.Errorf("read the answer: %w", err), retry: true}
	}
	o, err := rawjson.ParseObject(data)
	if err != nil {
		return broken(err)
	}
	choices, err := rawjson.ParseArray(o.Get("choices"))
	if err != nil || len(choices) == 0 {
		return broken(errors.New("it has no choices"))
	}
	choice, err := rawjson.ParseObject(choices[0])
	if err != nil {
		return broken(err)
	}
	raw := choice.Get("message")
	message, err := llm.ParseMessage(raw)
	if err != nil {
		return broken(err)
	}
	r := reply{message: message}
	r.message.Extra = nil // fields of an answer are not fields of a request
	if fields, err := rawjson.ParseObject(raw); err == nil && rawjson.IsNull(fields.Get("reasoning_content")) {
		r.reasoningKey = "reasoning"
	} else {
		r.reasoningKey = "reasoning_content"
	}
	r.finish, _ = rawjson.String(choice.Get("finish_reason"))
	return r, nil
}
