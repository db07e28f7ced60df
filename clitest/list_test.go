package clitest_test

// clis are all that are tried, in the order of the table.
func clis() []cli {
	return []cli{claudeCode(), codex(), qwenCode(), geminiCLI(), opencode(), pi(), miniSWEAgent(), openHandsSDK()}
}
