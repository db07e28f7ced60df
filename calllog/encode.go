package calllog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"

	"polar"
	"polar/llm"
)

// A session file is fileHeader and frames. A frame is the length of its
// payload, its kind, the checksum of kind and payload, and the payload.
const (
	fileHeader = "polarcalls1\n"
	frameHead  = 9
	// maxFrame keeps a length far from what would overflow.
	maxFrame = 1 << 30

	frameCall      = 1 // a call, see encode
	frameDelivered = 2 // the number of a call, 1 or 0, and its retries if there is more
)

func appendFrame(dst []byte, kind byte, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = append(dst, kind)
	dst = binary.LittleEndian.AppendUint32(dst, frameSum(kind, payload))
	return append(dst, payload...)
}

func frameSum(kind byte, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, payload)
}

// encode makes the frame of a call. In its payload numbers are varints, and a
// list or text is its length plus one and its elements, 0 for nil:
//
//	prompt   0, or 1, share of an earlier call's prompt, list of added ids
//	messages 0, or 1, share of an earlier call's messages, list of added ones
//	tools    0, or 1 and a new list, or 2 and the number of an earlier list
//	sampled  list of ids, each with the bits of its logprob
//	reply, chat_template_kwargs, the rest of the call as JSON
//
// A share is the number of the call and how much is kept of it. What came as
// raw JSON is kept apart from the rest, byte for byte.
func (d *deltas) encode(call *polar.Call, ids llm.IDs) (frame []byte, a added, err error) {
	rest := *call
	rest.Messages, rest.Tools, rest.Reply, rest.Sampling.ChatTemplateKwargs = nil, nil, nil, nil
	var asJSON bytes.Buffer
	enc := json.NewEncoder(&asJSON)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(rest); err != nil {
		return nil, a, err
	}

	b := make([]byte, frameHead, frameHead+asJSON.Len()+len(call.Reply)+10*len(call.Sampled)+256)
	b = d.appendPrompt(b, ids, &a)
	b = d.appendMessages(b, call.Messages, &a)
	b = d.appendTools(b, call.Tools, &a)
	b = appendSampled(b, call.Sampled)
	b = appendText(b, call.Reply)
	if kwargs := call.Sampling.ChatTemplateKwargs; kwargs != nil {
		b = appendText(b, kwargs.Append(nil))
	} else {
		b = append(b, 0)
	}
	b = appendText(b, bytes.TrimSuffix(asJSON.Bytes(), []byte{'\n'}))

	payload := b[frameHead:]
	if len(payload) > maxFrame {
		return nil, a, fmt.Errorf("%d bytes are too much for one call", len(payload))
	}
	binary.LittleEndian.PutUint32(b, uint32(len(payload)))
	b[4] = frameCall
	binary.LittleEndian.PutUint32(b[5:], frameSum(frameCall, payload))
	return b, a, nil
}

func (d *deltas) appendPrompt(b []byte, ids llm.IDs, a *added) []byte {
	if ids == nil {
		return append(b, 0)
	}
	s := d.findPrompt(ids, a)
	b = appendShare(append(b, 1), s)
	b = binary.AppendUvarint(b, uint64(len(ids)-s.keep)+1)
	for _, id := range ids[s.keep:] {
		b = binary.AppendUvarint(b, uint64(uint32(id)))
	}
	return b
}

func (d *deltas) appendMessages(b []byte, messages []json.RawMessage, a *added) []byte {
	if messages == nil {
		return append(b, 0)
	}
	s := d.findMessages(messages, a)
	return appendList(appendShare(append(b, 1), s), messages[s.keep:])
}

func (d *deltas) appendTools(b []byte, tools []json.RawMessage, a *added) []byte {
	if tools == nil {
		return append(b, 0)
	}
	if n, ok := d.findTools(tools, a); ok {
		return binary.AppendUvarint(append(b, 2), uint64(n))
	}
	return appendList(append(b, 1), tools)
}

func appendShare(b []byte, s share) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.call)), uint64(s.keep))
}

func appendSampled(b []byte, tokens []llm.Token) []byte {
	if tokens == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(tokens))+1)
	for _, t := range tokens {
		b = binary.AppendUvarint(b, uint64(uint32(t.ID)))
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(t.Logprob))
	}
	return b
}

func appendList(b []byte, list []json.RawMessage) []byte {
	b = binary.AppendUvarint(b, uint64(len(list))+1)
	for _, raw := range list {
		b = appendText(b, raw)
	}
	return b
}

func appendText(b, text []byte) []byte {
	if text == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(text))+1), text...)
}
