package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"polar/llm"
	"polar/rawjson"
	"polar/sse"
)

// Connections are kept open for as many calls as are likely at a time: opening
// one for each call would cost more than the call.
const (
	maxIdleConnections = 8192
	idleTimeout        = 90 * time.Second
	dialTimeout        = 10 * time.Second
	connectionBuffer   = 16 << 10
	maxErrorBytes      = 64 << 10
	maxListBytes       = 4 << 20
	defaultEventBytes  = 64 << 20
)

// drainTimeout is how long the end of a connection is waited for after the end
// of an answer, so that the connection can be used again.
const drainTimeout = time.Second

// errSilent is the cause of a call that ended because the engine said nothing.
var errSilent = errors.New("engine was silent for too long")

// connection is what the settings of every engine have.
type connection struct {
	url, apiKey             string
	timeout, backoff        float64 // seconds
	attempts, maxEventBytes int
}

// client asks one server. It knows HTTP and when to ask again, and nothing of
// what is asked.
type client struct {
	url      string
	apiKey   string
	timeout  time.Duration
	attempts int
	backoff  time.Duration
	events   sse.Config
	http     *http.Client
	pool     *http.Transport
}

func newClient(c connection) (*client, error) {
	u, err := url.Parse(c.url)
	switch {
	case c.url == "":
		return nil, fmt.Errorf("url: missing")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("url: %q is not an http or https URL", c.url)
	case c.timeout < 0:
		return nil, fmt.Errorf("timeout_seconds: must not be negative")
	case c.attempts < 0:
		return nil, fmt.Errorf("max_attempts: must not be negative")
	case c.backoff < 0:
		return nil, fmt.Errorf("backoff_seconds: must not be negative")
	}
	pool := &http.Transport{
		// No proxy: the engine is ours, and a proxy would hold its stream back.
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   maxIdleConnections,
		IdleConnTimeout:       idleTimeout,
		TLSHandshakeTimeout:   dialTimeout,
		ExpectContinueTimeout: time.Second,
		ReadBufferSize:        connectionBuffer,
		WriteBufferSize:       connectionBuffer,
	}
	return &client{
		url:      strings.TrimSuffix(strings.TrimRight(c.url, "/"), "/v1"),
		apiKey:   c.apiKey,
		timeout:  seconds(c.timeout, 900*time.Second),
		attempts: or(c.attempts, 3),
		backoff:  seconds(c.backoff, 100*time.Millisecond),
		events:   sse.Config{MaxEventBytes: or(c.maxEventBytes, defaultEventBytes), Buffers: &sse.Buffers{}},
		http:     &http.Client{Transport: pool},
		pool:     pool,
	}, nil
}

func seconds(s float64, otherwise time.Duration) time.Duration {
	return or(time.Duration(s*float64(time.Second)), otherwise)
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// at is the same client for another server.
func (c *client) at(url string) *client {
	other := *c
	other.url = url
	return &other
}

func (c *client) Close() error {
	c.pool.CloseIdleConnections()
	return nil
}

// reader is an answer on its way.
type reader interface {
	// next returns the next event that says something; the last has a Finish.
	next() (llm.Event, error)
	// drain reads to the end, without which the connection could not be used
	// again; close ends it now.
	drain()
	close()
}

// answer yields the answer that open finds. It opens until an answer begins or
// there is no use in asking again. silent is how long the engine may say
// nothing.
func (c *client) answer(ctx context.Context, silent time.Duration, open func(ctx context.Context, attempt int) (reader, llm.Event, error)) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		silence := time.AfterFunc(silent, func() { cancel(errSilent) })
		defer silence.Stop()

		var r reader
		var e llm.Event
		err := c.retry(ctx, func(attempt int) (err error) {
			r, e, err = open(ctx, attempt)
			return err
		})
		if err != nil {
			yield(llm.Event{}, c.explain(ctx, silent, err))
			return
		}
		defer r.close()
		for {
			silence.Reset(silent)
			if !yield(e, nil) {
				return
			}
			if e.Finish != "" {
				silence.Reset(drainTimeout)
				r.drain()
				return
			}
			if e, err = r.next(); err != nil {
				yield(llm.Event{}, c.explain(ctx, silent, err))
				return
			}
		}
	}
}

// retry tries until it works or there is no use in trying again. Attempts are
// counted from 0.
func (c *client) retry(ctx context.Context, try func(attempt int) error) error {
	for attempt := 0; ; attempt++ {
		err := try(attempt)
		if err == nil {
			return nil
		}
		wait, again := c.waitBefore(attempt+1, err)
		if !again || ctx.Err() != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// maxRetryAfter is the longest Retry-After that is waited for here; a longer
// one is the harness's to decide on.
const maxRetryAfter = 5 * time.Second

func (c *client) waitBefore(attempt int, err error) (time.Duration, bool) {
	var f *failure
	if attempt >= c.attempts || errors.As(err, &f) && (!f.retry || f.after > maxRetryAfter) {
		return 0, false
	}
	wait := c.backoff << min(attempt-1, 16)
	wait += time.Duration(rand.Int64N(int64(wait)/2 + 1)) // so that many callers do not come back as one
	if f != nil {
		wait = max(wait, f.after)
	}
	return wait, true
}

// do sends a request; an answer that is not 200 is a failure.
func (c *client) do(ctx context.Context, method, path string, b *body) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "polar")
	if b != nil {
		req.Header.Set("Content-Type", "application/json")
		req.ContentLength, req.GetBody = b.length(), b.open
		if req.Body, err = b.open(); err != nil {
			return nil, err
		}
	}
	if c.apiKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.apiKey)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	if err != nil {
		said = nil // the status says enough
	}
	return nil, refused(resp.StatusCode, said, resp.Header.Get("Retry-After"))
}

// explain says in the words of package llm why a call failed. If the caller
// ended it, that is the reason, whatever broke on the way.
func (c *client) explain(ctx context.Context, silent time.Duration, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return llm.Errorf(llm.EngineTimeout, "engine %s said nothing for %v", c.url, silent)
	} else if cause != nil {
		return cause
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.err
	}
	return llm.Errorf(llm.EngineFailed, "engine %s: %v", c.url, err)
}

// ask reads an answer whole, which may have limit bytes.
func (c *client) ask(ctx context.Context, method, path string, b *body, limit int) ([]byte, error) {
	resp, err := c.do(ctx, method, path, b)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var read bytes.Buffer
	if resp.ContentLength > 0 {
		read.Grow(int(min(resp.ContentLength, int64(limit))) + bytes.MinRead)
	}
	if _, err := read.ReadFrom(io.LimitReader(resp.Body, int64(limit)+1)); err != nil {
		return nil, fmt.Errorf("engine cut the answer: %w", err)
	}
	if read.Len() > limit {
		return nil, fmt.Errorf("engine's answer is larger than %d bytes", limit)
	}
	return read.Bytes(), nil
}

func (c *client) get(ctx context.Context, path string) ([]byte, error) {
	answer, err := c.ask(ctx, http.MethodGet, path, nil, maxListBytes)
	if err != nil {
		return nil, c.explain(ctx, c.timeout, err)
	}
	return answer, nil
}

// post asks until there is an answer or no use in asking again.
func (c *client) post(ctx context.Context, path string, b *body) (answer []byte, err error) {
	err = c.retry(ctx, func(int) error {
		answer, err = c.ask(ctx, http.MethodPost, path, b, c.events.MaxEventBytes)
		return err
	})
	return answer, err
}

// model is an entry of a server's list of models.
type model struct {
	ID          string `json:"id"`
	MaxModelLen int    `json:"max_model_len"`
}

func (c *client) models(ctx context.Context) ([]model, error) {
	answer, err := c.get(ctx, "/v1/models")
	if err != nil {
		return nil, err
	}
	var list struct {
		Data []model `json:"data"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("list models: %w", err)
	}
	return list.Data, nil
}

func (c *client) Models(ctx context.Context) ([]string, error) {
	list, err := c.models(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.ID
	}
	return names, nil
}

// served is the model that the server names first.
func (c *client) served(ctx context.Context) (model, error) {
	list, err := c.models(ctx)
	if err == nil && len(list) == 0 {
		err = llm.Errorf(llm.EngineFailed, "engine %s serves no model", c.url)
	}
	if err != nil {
		return model{}, err
	}
	return list[0], nil
}

func (c *client) Health(ctx context.Context) error {
	_, err := c.get(ctx, "/health")
	return err
}

// version is what the server says of itself at a path, or "".
func (c *client) version(ctx context.Context, path string) string {
	answer, err := c.get(ctx, path)
	if err != nil {
		return ""
	}
	o, err := rawjson.ParseObject(answer)
	if err != nil {
		return ""
	}
	v, _ := rawjson.String(o.Get("version")) // not there, or nothing to show
	return v
}

// probeRequest is the call of one token that shows what an engine returns.
func probeRequest(model string) llm.Request {
	one := 1
	return llm.Request{
		Model:    model,
		Messages: []llm.Message{{Role: "user", Content: rawjson.Quote("Say hello.")}},
		Sampling: llm.Sampling{MaxTokens: &one},
	}
}
