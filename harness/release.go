package harness

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Release is which version of a product a plan runs.
type Release struct {
	Product Product
	// Version is known beforehand if the product is installed by polar.
	Version string `json:",omitempty"`
	// Ask is the command that prints it otherwise.
	Ask []string `json:",omitempty"`
	// Expected refuses every other version.
	Expected string `json:",omitempty"`
}

var versionPattern = regexp.MustCompile(`\d+(\.\d+)+([-+.][0-9A-Za-z-.]+)?`)

// ReadVersion finds the version in what a program prints of it, or nothing.
func ReadVersion(printed string) string { return versionPattern.FindString(printed) }

// Warning says what is doubtful about running a version of the product; empty
// if it was tried.
func (p Product) Warning(version string) string {
	switch {
	case p.Newest == "":
		return ""
	case version == "":
		return fmt.Sprintf("the version of %s is not known; %s was tried", p.Name, p.tried())
	case CompareVersions(version, p.Oldest) < 0 || CompareVersions(version, p.Newest) > 0:
		return fmt.Sprintf("%s %s was not tried with this version of polar; %s was", p.Name, version, p.tried())
	}
	return ""
}

func (p Product) tried() string {
	if p.Oldest == p.Newest {
		return p.Newest
	}
	return p.Oldest + " to " + p.Newest
}

// CompareVersions orders versions by their numbers. A pre-release comes before
// its release.
func CompareVersions(a, b string) int {
	coreA, preA, _ := strings.Cut(a, "-")
	coreB, preB, _ := strings.Cut(b, "-")
	partsA, partsB := strings.Split(coreA, "."), strings.Split(coreB, ".")
	for i := range max(len(partsA), len(partsB)) {
		if d := versionPart(partsA, i) - versionPart(partsB, i); d != 0 {
			return d
		}
	}
	switch {
	case preA == preB:
		return 0
	case preA == "":
		return 1
	case preB == "":
		return -1
	}
	return strings.Compare(preA, preB)
}

func versionPart(parts []string, i int) int {
	if i >= len(parts) {
		return 0
	}
	n, _ := strconv.Atoi(parts[i]) // what is no number counts as 0
	return n
}
