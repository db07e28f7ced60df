package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"polar/llm"
	"polar/rawjson"
)

// parseContents reads the conversation.
func parseContents(at string, value []byte) ([]llm.Message, error) {
	var c conversation
	err := eachOf(at, value, c.content)
	c.endTurn()
	return c.messages, err
}

// conversation turns contents into messages as they come.
type conversation struct {
	messages []llm.Message
	// turn is what the model says, for as long as nobody else has spoken: a
	// client that streams may send each chunk back as a content of its own.
	turn *turn
	// waiting are the calls of functions that have no result yet.
	waiting []llm.ToolCall
	// calls is how many there were.
	calls int
}

// turn is one turn of the model.
type turn struct {
	content   content
	thoughts  strings.Builder
	reasoning string // from a signature of ours, which knows all of it
	calls     []llm.ToolCall
}

func (c *conversation) content(at string, value []byte) error {
	role, parts := "user", json.RawMessage(value)
	partsAt := at
	if value[0] == '{' {
		parts, partsAt = nil, at+".parts"
		err := eachField(at, value, func(_, key string, value []byte) (err error) {
			switch key {
			case "role":
				role, err = rawjson.String(value)
			case "parts":
				parts = value
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if parts == nil {
		parts = json.RawMessage("[]")
	}
	switch role {
	case "model":
		return c.model(partsAt, parts)
	case "user", "function", "":
		return c.other("user", partsAt, parts)
	case "system":
		return c.other("system", partsAt, parts)
	}
	return inField(at+".role", unknownWord(role, "user", "model", "function"))
}

// model adds to what the model says.
func (c *conversation) model(at string, parts []byte) error {
	if c.turn == nil {
		c.turn = &turn{}
	}
	return eachOf(at, parts, func(at string, value []byte) error {
		p, err := parsePart(at, value)
		switch {
		case err != nil:
			return err
		case p.response != nil:
			return errors.New("a functionResponse is not the model's to give")
		}
		t := c.turn
		if reasoning, ours := readSignature(p.signature); ours {
			t.reasoning = reasoning
		}
		if p.thought {
			t.thoughts.WriteString(p.words())
			return nil
		}
		if p.call != nil {
			call, err := c.call(at, p.call)
			if err != nil {
				return err
			}
			t.calls = append(t.calls, call)
		}
		return t.content.add(at, p)
	})
}

// endTurn makes a message of what the model has said.
func (c *conversation) endTurn() {
	t := c.turn
	if t == nil {
		return
	}
	c.turn = nil
	m := llm.Message{Role: "assistant", ToolCalls: t.calls, Reasoning: t.reasoning}
	if m.Reasoning == "" {
		m.Reasoning = t.thoughts.String()
	}
	if len(t.content.parts) > 0 || len(t.calls) == 0 {
		m.Content = t.content.json(true)
	}
	c.messages = append(c.messages, m)
}

// other makes messages of what anybody but the model says: the results of
// functions have one each, in their place.
func (c *conversation) other(role, at string, parts []byte) error {
	c.endTurn()
	var said content
	results := 0
	end := func() {
		if len(said.parts) > 0 {
			c.messages = append(c.messages, llm.Message{Role: role, Content: said.json(false)})
			said = content{}
		}
	}
	err := eachOf(at, parts, func(at string, value []byte) error {
		p, err := parsePart(at, value)
		switch {
		case err != nil:
			return err
		case p.call != nil:
			return errors.New("a functionCall is the model's alone")
		case p.thought:
			return nil
		}
		if p.response != nil {
			end()
			results++
			m, err := c.result(at, p.response)
			if err != nil {
				return err
			}
			c.messages = append(c.messages, m)
		}
		return said.add(at, p)
	})
	if len(said.parts) == 0 && results == 0 {
		c.messages = append(c.messages, llm.Message{Role: role, Content: json.RawMessage(`""`)})
	}
	end()
	return err
}

// call reads a functionCall. The arguments stay as they are written.
func (c *conversation) call(at string, value []byte) (llm.ToolCall, error) {
	call := llm.ToolCall{Arguments: "{}"}
	err := eachField(at+".functionCall", value, func(_, key string, value []byte) (err error) {
		switch key {
		case "id":
			call.ID, err = rawjson.String(value)
		case "name":
			call.Name, err = rawjson.String(value)
		case "args":
			if value[0] != '{' {
				return fmt.Errorf("an object expected, got %s", rawjson.Kind(value))
			}
			call.Arguments = string(value)
		}
		return err
	})
	if err == nil && call.Name == "" {
		err = inField(at+".functionCall.name", errors.New("missing"))
	}
	if call.ID == "" {
		call.ID = placeID(c.calls)
	}
	c.calls++
	c.waiting = append(c.waiting, call)
	return call, err
}

func placeID(place int) string { return fmt.Sprintf("call_%d", place) }

// result reads a functionResponse. What the model is shown of it is the JSON as
// it is written.
func (c *conversation) result(at string, value []byte) (llm.Message, error) {
	m := llm.Message{Role: "tool"}
	var said content
	at += ".functionResponse"
	response, media := json.RawMessage(`""`), json.RawMessage("[]")
	err := eachField(at, value, func(_, key string, value []byte) (err error) {
		switch key {
		case "id":
			m.ToolCallID, err = rawjson.String(value)
		case "name":
			m.Name, err = rawjson.String(value)
		case "response":
			response = rawjson.Quote(string(value))
		case "parts":
			media = value
		}
		return err
	})
	if err != nil {
		return m, err
	}
	said.parts = append(said.parts, chatPart{text: response})
	err = eachOf(at+".parts", media, func(at string, value []byte) error {
		p, err := parsePart(at, value)
		if err != nil {
			return err
		}
		return said.add(at, p)
	})
	m.Content = said.json(false)
	m.ToolCallID = c.answered(m.ToolCallID, m.Name)
	return m, err
}

// answered is the id of the call that a result belongs to, which waits no
// longer: the one with the id, or the first of the name where there is no id.
func (c *conversation) answered(id, name string) string {
	for i, call := range c.waiting {
		if id == call.ID || id == "" && name == call.Name {
			c.waiting = append(c.waiting[:i:i], c.waiting[i+1:]...)
			return call.ID
		}
	}
	if id == "" {
		// It answers nothing that was asked: it gets an id that no call has.
		id = placeID(c.calls) + "_none"
	}
	return id
}
