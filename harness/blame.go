package harness

import (
	"regexp"

	"polar"
)

// blameFor says whose fault an error message of a model call is: the service's
// if its endpoint was not to be had, else the agent's, which asked for what it
// could not get.
func blameFor(message string) polar.Blame {
	if matchesAny(message, spent) || !matchesAny(message, troubles) {
		return polar.BlameAgent
	}
	return polar.BlameService
}

func matchesAny(message string, patterns []*regexp.Regexp) bool {
	for _, p := range patterns {
		if p.MatchString(message) {
			return true
		}
	}
	return false
}

// spent are the words for a session that has used up what it may use: its
// budget, which the gateway refuses with a 429, and its context.
var spent = patterns(
	`(?i)budget of \d+ [a-z ]+ is spent`, `(?i)insufficient_quota|quota exceeded`,
	`(?i)context_length_exceeded|context (length|window|size)|(prompt|input|request|conversation) (is )?too long`,
	`(?i)input token count|reduce the length of`,
)

// troubles are words that harnesses have for an endpoint that is not to be had.
// They are looked for in error messages only, never in what a model said.
// Numbers count where a status stands, not where tokens or seconds are counted.
var troubles = patterns(
	// a status that a message begins with, or that is called one
	`^`+status+`($|[:,;.)]| [A-Z{(\["])`, status+` status code`, status+` (Service|Server|Internal|Bad|Gateway|Too Many|Unauthorized|Forbidden)`,
	`(?i:status|http|error|code|rejected)(?i: code)?["']?[ :=(\[]*`+status+`\b`,
	// what a server says of itself
	`(?i)overloaded|over capacity|rate.?limit|too many requests|internal server error|server_error|bad gateway|service.?unavailable|\bUNAVAILABLE\b|gateway time-?out`,
	`(?i)engine_failed|engine_timeout|storage_failed|unauthorized|api.?key`,
	// what becomes of a connection
	`(?i)connection (error|refused|reset|closed|dropped|lost|aborted)|(cannot|unable to|could not|failed to) connect|network error|socket hang up|other side closed`,
	`(?i)econn(refused|reset|aborted)|etimedout|epipe|enotfound|eai_again|getaddrinfo|fetch failed|^(typeerror: )?terminated$`,
	`(?i)stream (was )?(disconnected|closed|cut|ended|error)|cut the stream|unexpected eof|premature (close|end)|timed out|time-?out\b`,
)

// status is a number that says that a server could not, or would not for anyone.
const status = `\b(5\d\d|429|401|403)`

func patterns(sources ...string) []*regexp.Regexp {
	made := make([]*regexp.Regexp, len(sources))
	for i, source := range sources {
		made[i] = regexp.MustCompile(source)
	}
	return made
}
