package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"polar"
)

// EachResultAfter calls f with up to limit results after the one with the number
// after, of one task or of all when task is empty, one at a time as they come.
// It returns the number of the last that f was given, or after, and that of the
// newest there is. Nothing is acknowledged.
func (c *Client) EachResultAfter(ctx context.Context, after int64, task polar.TaskID, limit int, f func(ListedResult, json.RawMessage) error) (last, newest int64, err error) {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(limit)}}
	if task != "" {
		q.Set("task", string(task))
	}
	resp, err := c.send(ctx, http.MethodGet, "/rollout/results?"+q.Encode(), nil, nil)
	if err != nil {
		return after, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return after, 0, statusError(resp)
	}
	page := resultsDecoder{dec: json.NewDecoder(resp.Body), last: after, f: f}
	if err := page.read(); err != nil {
		return page.last, page.newest, fmt.Errorf("rollout server %s: read results: %w", c.URL, err)
	}
	return page.last, page.newest, nil
}

// resultsDecoder reads an answer without holding more than one result of it.
type resultsDecoder struct {
	dec          *json.Decoder
	places       []ListedResult
	last, newest int64
	f            func(ListedResult, json.RawMessage) error
}

func (d *resultsDecoder) read() error {
	if err := d.token(json.Delim('{')); err != nil {
		return err
	}
	for d.dec.More() {
		key, err := d.dec.Token()
		if err != nil {
			return err
		}
		switch key {
		case "places":
			err = d.dec.Decode(&d.places)
		case "newest":
			err = d.dec.Decode(&d.newest)
		case "results":
			err = d.results()
		default:
			var other json.RawMessage
			err = d.dec.Decode(&other)
		}
		if err != nil {
			return err
		}
	}
	return d.token(json.Delim('}'))
}

func (d *resultsDecoder) results() error {
	if err := d.token(json.Delim('[')); err != nil {
		return err
	}
	for _, place := range d.places {
		var raw json.RawMessage
		if err := d.dec.Decode(&raw); err != nil {
			return err
		}
		if err := d.f(place, raw); err != nil {
			return err
		}
		d.last = place.Seq
	}
	return d.token(json.Delim(']'))
}

func (d *resultsDecoder) token(want json.Delim) error {
	got, err := d.dec.Token()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%v found, %v expected: the server may be of an older version", got, want)
	}
	return nil
}
