// Package chat speaks OpenAI's Chat Completions to harnesses.
package chat

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"time"

	"polar/llm"
	"polar/rawjson"
)

// Protocol is the wire format. It has no state.
type Protocol struct{}

// Wire is the format's name in records.
func (Protocol) Wire() string { return "chat" }

// Routes are where model calls come in.
func (Protocol) Routes() []string { return []string{"POST /v1/chat/completions"} }

// ModelRoutes are where a harness asks which models there are.
func (Protocol) ModelRoutes() []string { return []string{"GET /v1/models"} }

// Models answers which models are served.
func (Protocol) Models(w http.ResponseWriter, names []string) {
	b := []byte(`{"object":"list","data":[`)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"id":`...)
		b = rawjson.AppendString(b, name)
		b = append(b, `,"object":"model","created":0,"owned_by":"polar"}`...)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, "]}"...)) // a client that is gone needs no list
}

// asked is what an answer needs to know of its request.
type asked struct {
	model    string
	usage    bool // a usage chunk ends the stream
	logprobs bool
}

// answer is what all parts of one answer have in common.
type answer struct {
	asked
	id      string
	created int64
}

func newAnswer(req llm.Request) answer {
	a := answer{id: req.ID, created: time.Now().Unix()}
	var ok bool
	if a.asked, ok = req.Reply.(asked); !ok {
		a.model = req.Model
	}
	if a.id == "" {
		var random [12]byte
		_, _ = rand.Read(random[:]) // never fails
		a.id = hex.EncodeToString(random[:])
	}
	a.id = "chatcmpl-" + a.id
	return a
}
