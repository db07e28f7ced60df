package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// FromNow asks Client.Events for what happens from now on.
const FromNow int64 = -1

// How long Events waits before it connects again, doubled each time.
const (
	minReconnect = 100 * time.Millisecond
	maxReconnect = 5 * time.Second
)

// Events yields what happens after the event with the id after: 0 for all that
// is kept, FromNow for what comes. When the connection is cut it connects again
// and goes on where it was; an error is yielded, with no event, each time that
// fails, and the caller decides by breaking off whether it has patience. It ends
// when ctx does or when the server refuses.
func (c *Client) Events(ctx context.Context, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		pause := minReconnect
		for ctx.Err() == nil {
			got, more, err := c.readEvents(ctx, &after, yield)
			if !more || ctx.Err() != nil {
				return
			}
			if got {
				pause = minReconnect
			}
			var refused *StatusError
			if err != nil && !yield(Event{}, err) || errors.As(err, &refused) {
				return
			}
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
			pause = min(2*pause, maxReconnect)
		}
	}
}

// readEvents reads one connection to its end. got says that something came,
// more that the caller wants to go on.
func (c *Client) readEvents(ctx context.Context, after *int64, yield func(Event, error) bool) (got, more bool, err error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if *after >= 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(*after, 10))
	}
	resp, err := c.send(ctx, http.MethodGet, "/events", nil, header)
	if err != nil {
		return false, true, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return false, true, statusError(resp)
	}
	lines := bufio.NewReader(resp.Body)
	var kind, data string
	place := *after // taken over only with the whole event
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return got, true, nil
		}
		if err != nil {
			return got, true, err
		}
		line = strings.TrimRight(line, "\r\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "event":
			kind = value
		case name == "data":
			data += value
		case name == "id":
			if id, err := strconv.ParseInt(value, 10, 64); err == nil {
				place = id
			}
		case line == "" && kind != "":
			got, *after = true, place
			if kind != "hello" && kind != "ping" {
				var e Event
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					return got, true, err
				}
				if !yield(e, nil) {
					return got, false, nil
				}
			}
			kind, data = "", ""
		}
	}
}
