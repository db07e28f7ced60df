package sim

import (
	"math/rand/v2"
	"strconv"
)

// The id space of the toy tokenizer. It needs no vocabulary file: what an id
// stands for is computed from its number.
const (
	firstSpecial = 256
	firstPair    = 512
	firstTriple  = firstPair + 128*128
	vocabSize    = firstTriple + 128*128*128
)

// The special tokens.
const (
	EndOfText int32 = firstSpecial + iota
	StartOfTurn
	EndOfTurn
	StartOfThinking
	EndOfThinking
	StartOfToolCall
	EndOfToolCall
	ImagePlaceholder
	endOfNamed
)

// specialText is the text of each named special token, from firstSpecial on.
var specialText = [...]string{
	"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|image_pad|>",
}

// longestSpecial bounds the search for a special token in text.
const longestSpecial = len("<|endoftext|>")

// Encode appends the canonical tokens of text to dst. Special tokens written
// out in the text stay text.
func Encode(dst []int32, text string) []int32 {
	for len(text) > 0 {
		n := wordLen(text)
		dst = encodeWord(dst, text[:n])
		text = text[n:]
	}
	return dst
}

// EncodeSpecial is Encode for a tokenizer that reads special tokens written out
// in text as the tokens themselves, wherever they come from.
func EncodeSpecial(dst []int32, text string) []int32 {
	from := 0
	for i := 0; i < len(text); i++ {
		if text[i] != '<' {
			continue
		}
		if id, n := specialAt(text[i:]); n > 0 {
			dst = Encode(dst, text[from:i])
			dst = append(dst, id)
			from = i + n
			i = from - 1
		}
	}
	return Encode(dst, text[from:])
}

// EncodeNoncanonical appends tokens that decode to text like those of Encode,
// but of each word, with a probability of share, other ones.
func EncodeNoncanonical(dst []int32, text string, share float64, rng *rand.Rand) []int32 {
	for len(text) > 0 {
		n := wordLen(text)
		if word := text[:n]; rng.Float64() < share {
			dst = encodeOtherwise(dst, word, rng)
		} else {
			dst = encodeWord(dst, word)
		}
		text = text[n:]
	}
	return dst
}

// Decode returns the bytes that ids stand for.
func Decode(ids []int32) []byte {
	out := make([]byte, 0, 3*len(ids))
	for _, id := range ids {
		out = appendToken(out, id)
	}
	return out
}

// IsToken reports whether id is in the vocabulary.
func IsToken(id int32) bool { return id >= 0 && id < vocabSize }

// IsSpecial reports whether id is a special token.
func IsSpecial(id int32) bool { return id >= firstSpecial && id < firstPair }

// appendToken appends the bytes of one token; an id outside the vocabulary has
// none.
func appendToken(dst []byte, id int32) []byte {
	switch {
	case !IsToken(id):
		return dst
	case id < firstSpecial:
		return append(dst, byte(id))
	case id < endOfNamed:
		return append(dst, specialText[id-firstSpecial]...)
	case id < firstPair:
		dst = append(dst, "<|reserved_"...)
		dst = strconv.AppendInt(dst, int64(id), 10)
		return append(dst, "|>"...)
	case id < firstTriple:
		id -= firstPair
		return append(dst, byte(id>>7), byte(id&127))
	}
	id -= firstTriple
	return append(dst, byte(id>>14), byte(id>>7&127), byte(id&127))
}

// specialAt returns the named special token that text begins with and the
// length of its text, or 0.
func specialAt(text string) (id int32, n int) {
	if len(text) > longestSpecial {
		text = text[:longestSpecial]
	}
	for i, s := range specialText {
		if len(text) >= len(s) && text[:len(s)] == s {
			return int32(firstSpecial + i), len(s)
		}
	}
	return 0, 0
}

// encodeWord takes three ASCII bytes at a time, else two, else one byte.
func encodeWord(dst []int32, word string) []int32 {
	for len(word) > 0 {
		n := min(3, asciiLen(word))
		dst = append(dst, tokenOf(word, n))
		word = word[max(n, 1):]
	}
	return dst
}

// encodeOtherwise splits a word at random, but not as encodeWord does. A word
// that has one split only is left as it is.
func encodeOtherwise(dst []int32, word string, rng *rand.Rand) []int32 {
	first := true
	for len(word) > 0 {
		longest := min(3, asciiLen(word))
		n := longest
		if longest > 1 {
			if first {
				n = 1 + rng.IntN(longest-1) // never the canonical length
				first = false
			} else {
				n = 1 + rng.IntN(longest)
			}
		}
		dst = append(dst, tokenOf(word, n))
		word = word[max(n, 1):]
	}
	return dst
}

// tokenOf is the token of the first n bytes of word, which are ASCII; n of 0 or
// 1 is the first byte alone, whatever it is.
func tokenOf(word string, n int) int32 {
	switch n {
	case 3:
		return firstTriple + (int32(word[0])*128+int32(word[1]))*128 + int32(word[2])
	case 2:
		return firstPair + int32(word[0])*128 + int32(word[1])
	}
	return int32(word[0])
}

// asciiLen counts the ASCII bytes at the start of s, as far as a token reaches.
func asciiLen(s string) int {
	n := 0
	for n < len(s) && n < 3 && s[n] < 0x80 {
		n++
	}
	return n
}

type class byte

const (
	letter class = iota
	digit
	space
	punctuation
)

func classOf(c byte) class {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= 0x80:
		return letter
	case c >= '0' && c <= '9':
		return digit
	case c == ' ', c == '\n', c == '\t', c == '\r':
		return space
	}
	return punctuation
}

// wordLen is the length of the first word of text: letters with the space
// before them, digits, punctuation, or white space.
func wordLen(text string) int {
	start := 0
	if text[0] == ' ' && len(text) > 1 && classOf(text[1]) == letter {
		start = 1
	}
	kind := classOf(text[start])
	n := start + 1
	for n < len(text) && classOf(text[n]) == kind {
		n++
	}
	// The last space before a word belongs to the word.
	if kind == space && n > 1 && n < len(text) && text[n-1] == ' ' && classOf(text[n]) == letter {
		n--
	}
	return n
}
