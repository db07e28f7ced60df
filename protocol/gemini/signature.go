package gemini

import (
	"encoding/base64"
	"strings"
)

// signaturePrefix tells a signature of ours from Google's, which mean nothing
// here.
const signaturePrefix = "polar:"

// signature is a thoughtSignature that holds the reasoning before a part.
// Harnesses drop thoughts and send signatures back: what the model thought
// between two calls of a tool stays in its prompt so, as its template has it.
// The field is bytes for some clients, hence base64 all of it.
func signature(reasoning []byte) string {
	return base64.StdEncoding.EncodeToString(append([]byte(signaturePrefix), reasoning...))
}

// readSignature is the reasoning in a signature, and whether it is one of ours.
// A client may have written its bytes again in the other alphabet of base64.
func readSignature(s string) (string, bool) {
	s = strings.TrimRight(s, "=")
	s = strings.NewReplacer("-", "+", "_", "/").Replace(s)
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(b), signaturePrefix)
}
