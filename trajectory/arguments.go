package trajectory

import (
	"encoding/json"
	"strconv"
	"strings"

	"polar/rawjson"
)

// canonicalArguments is the same text for arguments that are equal as JSON:
// harnesses that keep them as objects spell them anew. Numbers are compared
// digit by digit, since as floats long ones that differ would be equal.
func canonicalArguments(arguments string) string {
	arguments = strings.TrimSpace(arguments)
	if rawjson.Valid([]byte(arguments)) != nil {
		return arguments
	}
	dec := json.NewDecoder(strings.NewReader(arguments))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return arguments
	}
	canonical, err := json.Marshal(canonicalNumbers(v))
	if err != nil {
		return arguments
	}
	return string(canonical)
}

// canonicalNumbers spells the numbers in v as canonicalNumber does, in place.
func canonicalNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return canonicalNumber(v)
	case []any:
		for i := range v {
			v[i] = canonicalNumbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = canonicalNumbers(v[key])
		}
	}
	return v
}

// canonicalNumber is the same number without zeros at either end of its digits:
// 1.50 is 15e-1, 100 is 1e2.
func canonicalNumber(n json.Number) json.Number {
	mantissa, power, _ := strings.Cut(strings.ToLower(string(n)), "e")
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			return n // out of all bounds
		}
	}
	sign := ""
	if rest, negative := strings.CutPrefix(mantissa, "-"); negative {
		sign, mantissa = "-", rest
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	significant := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(significant)
	return json.Number(sign + significant + "e" + strconv.Itoa(exponent))
}
