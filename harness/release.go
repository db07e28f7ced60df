package harness

import (
	"cmp"
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
// its release; what stands after a plus sign does not count.
func CompareVersions(a, b string) int {
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	coreA, preA, _ := strings.Cut(a, "-")
	coreB, preB, _ := strings.Cut(b, "-")
	if d := compareParts(coreA, coreB); d != 0 {
		return d
	}
	switch {
	case preA == preB:
		return 0
	case preA == "":
		return 1
	case preB == "":
		return -1
	}
	return compareParts(preA, preB)
}

// compareParts orders by the parts between dots: numbers by their size and
// before words, and a part that is missing as 0.
func compareParts(a, b string) int {
	partsA, partsB := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(partsA), len(partsB)) {
		numberA, wordA := versionPart(partsA, i)
		numberB, wordB := versionPart(partsB, i)
		if d := cmp.Or(cmp.Compare(wordA, wordB), cmp.Compare(numberA, numberB)); d != 0 {
			return d
		}
	}
	return 0
}

func versionPart(parts []string, i int) (number int, word string) {
	if i >= len(parts) {
		return 0, ""
	}
	n, err := strconv.Atoi(parts[i])
	if err != nil {
		return 0, parts[i]
	}
	return n, ""
}
