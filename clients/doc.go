// Package clients holds nothing but tests: the providers' own clients,
// unmodified, against polar as a black box. The tests build the binary, run
// polar sim and polar serve as processes of their own, and ask through the
// gateway with the Go clients of OpenAI, Anthropic and Google and with those
// from npm, for which Node runs the scripts below node. What a client read is
// held against what the simulator said, and what was recorded against the
// simulator's own record, token for token.
//
// The module stands alone so that the clients are no dependency of polar. Run
// it with -count=1: the test cache does not see changes of polar.
package clients
