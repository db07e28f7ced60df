package calllog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"polar"
	"polar/llm"
)

// Session is the log of one attempt at a session. Its methods may be called at
// the same time. It holds no message in memory, and each token of its prompts
// once.
type Session struct {
	log  *Log
	path string

	mu     sync.Mutex
	file   file
	end    int64 // of the last good frame
	known  map[polar.CallID]int
	deltas *deltas
	// broken is set when the file could not be brought back to its last good
	// frame, or is closed.
	broken error
}

func sessionPath(id polar.SessionID, attempt int) (string, error) {
	if !polar.ValidID(string(id)) || attempt < 0 {
		return "", fmt.Errorf("call log of session %q attempt %d: not a valid id or attempt", id, attempt)
	}
	return filepath.Join(string(id), strconv.Itoa(attempt)+".log"), nil
}

// Append records a call and the tokens of its prompt, nil if the engine did not
// give them, and sets call.Prompt. When it returns nil the call is durable; when
// it returns an error the call is not in the log. It keeps neither argument. If
// ctx ends before the call is on its way to the disk, it is given up.
func (s *Session) Append(ctx context.Context, call *polar.Call, promptIDs llm.IDs) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.known[call.ID]; twice {
		return fmt.Errorf("record call %s: already recorded", call.ID)
	}
	frame, added, err := s.deltas.encode(call, promptIDs)
	if err == nil {
		err = s.writeDurably(ctx, frame)
	}
	if err != nil {
		return fmt.Errorf("record call %s: %w", call.ID, err)
	}
	s.known[call.ID] = len(s.known)
	call.Prompt = s.deltas.accept(added)
	return nil
}

// SetDelivered records whether the answer of a call reached the harness, and
// how many repetitions of the call were given it. It is durable with the next
// call, or when the log is closed.
func (s *Session) SetDelivered(id polar.CallID, delivered bool, retries int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.known[id]
	if !ok {
		return fmt.Errorf("mark call %s delivered: not recorded", id)
	}
	payload := binary.AppendUvarint(nil, uint64(n))
	payload = append(payload, 0)
	if delivered {
		payload[len(payload)-1] = 1
	}
	payload = binary.AppendUvarint(payload, uint64(max(retries, 0)))
	if err := s.writeQuietly(appendFrame(nil, frameDelivered, payload)); err != nil {
		return fmt.Errorf("mark call %s delivered: %w", id, err)
	}
	return nil
}

// Calls reads back what was recorded.
func (s *Session) Calls() ([]polar.Call, error) {
	s.mu.Lock()
	end := s.end
	s.mu.Unlock()
	calls, cut, err := readFile(filepath.Join(s.log.dir, s.path), end)
	if cut > 0 {
		s.log.log.Error("call log is damaged; calls after the damage are lost", "file", s.path, "cut_bytes", cut)
	}
	return calls, err
}

// Close closes the file. What was appended stays.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	if s.broken == nil {
		s.broken = errors.New("session log is closed")
	}
	return err
}

// writeDurably appends a frame to the file and waits until the journal has it.
func (s *Session) writeDurably(ctx context.Context, frame []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w, err := s.write(frame, make(chan error, 1))
	if err != nil {
		return err
	}
	if err := s.log.settle(ctx, w); err != nil {
		s.cutBack()
		return err
	}
	s.end += int64(len(frame))
	return nil
}

// writeQuietly appends bytes to the file that the journal gets in its time.
func (s *Session) writeQuietly(data []byte) error {
	if _, err := s.write(data, nil); err != nil {
		return err
	}
	s.end += int64(len(data))
	return nil
}

// write puts data after the last good frame and into the journal's queue. If
// it fails, the file ends with that frame again.
func (s *Session) write(data []byte, done chan error) (*write, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	w := &write{path: s.path, offset: s.end, data: data, done: done}
	err := writeAll(s.file, data, s.end)
	if err == nil {
		err = s.log.enqueue(w)
	}
	if err != nil {
		s.cutBack()
		return nil, err
	}
	return w, nil
}

// cutBack drops what is after the last good frame.
func (s *Session) cutBack() {
	if err := s.file.Truncate(s.end); err != nil {
		s.broken = fmt.Errorf("session log is broken: %w", err)
	}
}
