// Package clitest holds nothing but tests: every harness CLI that polar has a
// preset for, unmodified, against polar as a black box. The tests build the
// binary, have it install the CLIs, run polar sim and polar serve as processes
// of their own, submit tasks and look at everything that came of them.
//
// What is tried is a scenario (scenario_test.go), each with a policy of the
// simulator below testdata/policies. What comes of it with a CLI is an outcome.
// What must hold in every session is in check_test.go.
//
// To add a CLI: write NAME_test.go with one function that returns a cli and add
// it to clis (list_test.go). For each scenario it says what is special to the
// CLI (settings, environment, rules that come before those of the scenario) and
// what comes of it; a scenario that does not apply says why. Start with empty
// outcomes: the test prints what it saw in the form in which it is written down.
// Judge that by hand before it becomes what is expected. Then run
//
//	go test ./clitest -run TestCLIs/NAME -update-table
//
// which writes the CLI's column of the table of docs/harnesses.md. CLIs that are
// slow to start go through a few scenarios only, unless the table is written or
// -slow is given. With -command NAME=PROGRAM a program of this machine is tried in
// place of the installed one.
package clitest
