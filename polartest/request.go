package polartest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Request makes a control request and decodes the answer into out, or copies it
// if out is bytes.
func Request(t *testing.T, method, at string, in, out any) {
	t.Helper()
	var body io.Reader = http.NoBody
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, at, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(data)))
	}
	switch out := out.(type) {
	case nil:
	case *[]byte:
		*out = data
	default:
		if err == nil {
			err = json.Unmarshal(data, out)
		}
	}
	if err != nil {
		t.Fatalf("%s %s: %v", method, at, err)
	}
}
