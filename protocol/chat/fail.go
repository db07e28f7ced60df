package chat

import (
	"net/http"

	"polar/llm"
	"polar/protocol/openai"
)

// Fail writes err as a whole response, as OpenAI would say it.
func (Protocol) Fail(w http.ResponseWriter, err *llm.Error) { openai.Fail(w, err) }
