package calllog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"polar"
	"polar/llm"
	"polar/rawjson"
)

var errDamaged = errors.New("damaged")

// reader puts calls together again from what each adds to earlier ones. The
// calls alias the bytes of the file.
type reader struct {
	calls []polar.Call
	lists []*messageList // by number of the call
	tools [][]json.RawMessage
}

// messageList is the messages of a conversation that only grows: the calls of
// it have the first so many. A slice of each call's own would cost the messages
// times the calls.
type messageList struct{ messages []json.RawMessage }

// read takes frames in until the data ends or is no frame, and returns what it
// could not read.
func (r *reader) read(data []byte) (rest []byte) {
	for len(data) >= frameHead {
		size, kind, sum := binary.LittleEndian.Uint32(data), data[4], binary.LittleEndian.Uint32(data[5:])
		if uint64(size) > uint64(len(data)-frameHead) {
			break
		}
		payload := data[frameHead : frameHead+int(size)]
		if frameSum(kind, payload) != sum || r.frame(kind, payload) != nil {
			break
		}
		data = data[frameHead+int(size):]
	}
	return data
}

func (r *reader) frame(kind byte, payload []byte) error {
	d := decoder{data: payload}
	switch kind {
	case frameCall:
		return r.call(&d)
	case frameDelivered:
		n, delivered := d.uint(), d.bytes(1)
		if d.err != nil || n >= uint64(len(r.calls)) {
			return errDamaged
		}
		r.calls[n].Delivered = delivered[0] == 1
		if len(d.data) > 0 { // logs of earlier versions end here
			r.calls[n].Retries = int(d.uint())
		}
		return d.err
	}
	return fmt.Errorf("kind %d: %w", kind, errDamaged)
}

func (r *reader) call(d *decoder) error {
	prompt := r.prompt(d)
	list, messages := r.messages(d)
	tools, newTools := r.toolList(d)
	sampled := d.tokens()
	reply, kwargs, rest := d.text(), d.text(), d.text()
	if d.err != nil {
		return d.err
	}
	var c polar.Call
	if err := json.Unmarshal(rest, &c); err != nil {
		return err
	}
	c.Prompt, c.Messages, c.Tools, c.Sampled, c.Reply = prompt, messages, tools, sampled, reply
	if kwargs != nil {
		var err error
		if c.Sampling.ChatTemplateKwargs, err = rawjson.ParseObject(kwargs); err != nil {
			return err
		}
	}
	r.calls, r.lists = append(r.calls, c), append(r.lists, list)
	if newTools {
		r.tools = append(r.tools, tools)
	}
	return nil
}

func (r *reader) prompt(d *decoder) *polar.Prompt {
	if !d.present() {
		return nil
	}
	call, keep := d.uint(), d.uint()
	n, _ := d.length(1)
	add := make(llm.IDs, n)
	for i := range add {
		add[i] = d.id()
	}
	if keep == 0 || d.err != nil {
		return polar.NewPrompt(nil, 0, add)
	}
	if call >= uint64(len(r.calls)) || keep > uint64(r.calls[call].Prompt.Len()) {
		d.fail()
		return nil
	}
	return polar.NewPrompt(r.calls[call].Prompt, int(keep), add)
}

func (r *reader) messages(d *decoder) (*messageList, []json.RawMessage) {
	if !d.present() {
		return nil, nil
	}
	call, keep := d.uint(), d.uint()
	add := d.list()
	list := &messageList{}
	if keep > 0 {
		if call >= uint64(len(r.calls)) || keep > uint64(len(r.calls[call].Messages)) {
			d.fail()
			return nil, nil
		}
		list = r.lists[call]
	}
	if d.err != nil {
		return nil, nil
	}
	if uint64(len(list.messages)) != keep && len(add) > 0 { // it went on otherwise
		list = &messageList{messages: list.messages[:keep:keep]}
	}
	list.messages = append(list.messages, add...)
	n := int(keep) + len(add)
	if n == 0 {
		return list, []json.RawMessage{}
	}
	return list, list.messages[:n:n]
}

func (r *reader) toolList(d *decoder) (tools []json.RawMessage, isNew bool) {
	switch d.uint() {
	case 0:
		return nil, false
	case 1:
		return d.list(), true
	case 2:
		if n := d.uint(); n < uint64(len(r.tools)) {
			return r.tools[n], false
		}
	}
	d.fail()
	return nil, false
}

// decoder reads a payload. After the first thing that does not fit it gives
// zeros and err is set.
type decoder struct {
	data []byte
	err  error
}

func (d *decoder) fail() {
	d.data = nil
	if d.err == nil {
		d.err = errDamaged
	}
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.data)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.data = d.data[n:]
	return v
}

func (d *decoder) id() int32 {
	v := d.uint()
	if v > math.MaxUint32 {
		d.fail()
	}
	return int32(uint32(v))
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.data)) {
		d.fail()
		return nil
	}
	b := d.data[:n:n]
	d.data = d.data[n:]
	return b
}

func (d *decoder) present() bool { return d.uint() == 1 }

// length reads the length of a list whose elements take at least so many
// bytes, so that no more room is made than there is data for; ok is false for
// nil.
func (d *decoder) length(atLeast int) (n int, ok bool) {
	v := d.uint()
	if v == 0 {
		return 0, false
	}
	if v-1 > uint64(len(d.data)/atLeast) {
		d.fail()
		return 0, false
	}
	return int(v - 1), true
}

func (d *decoder) text() []byte {
	n, ok := d.length(1)
	if !ok {
		return nil
	}
	return d.bytes(uint64(n))
}

func (d *decoder) list() []json.RawMessage {
	n, ok := d.length(1)
	if !ok {
		return nil
	}
	list := make([]json.RawMessage, n)
	for i := range list {
		list[i] = d.text()
	}
	return list
}

func (d *decoder) tokens() []llm.Token {
	n, ok := d.length(5)
	if !ok {
		return nil
	}
	tokens := make([]llm.Token, n)
	for i := range tokens {
		tokens[i].ID = d.id()
		if bits := d.bytes(4); bits != nil {
			tokens[i].Logprob = math.Float32frombits(binary.LittleEndian.Uint32(bits))
		}
	}
	return tokens
}
