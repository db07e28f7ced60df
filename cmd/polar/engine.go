package main

import (
	"encoding/json"
	"fmt"
	"os"

	"polar"
	"polar/backend"
)

// endpointSection is one inference server of a node.
type endpointSection struct {
	URL       string  `json:"url"`
	Weight    float64 `json:"weight"`
	APIKeyEnv string  `json:"api_key_env"`
}

// endpoints are the servers of a node: those listed, else the one at base_url.
func (i inferenceSection) endpoints() []endpointSection {
	if len(i.Endpoints) > 0 {
		return i.Endpoints
	}
	return []endpointSection{{URL: i.BaseURL, APIKeyEnv: i.APIKeyEnv}}
}

// setURLs replaces the servers by those at the URLs.
func (i *inferenceSection) setURLs(urls []string) {
	i.Endpoints = nil
	for _, u := range urls {
		i.Endpoints = append(i.Endpoints, endpointSection{URL: u, APIKeyEnv: i.APIKeyEnv})
	}
}

// openEngine opens the inference servers of a node as one engine.
func openEngine(kinds polar.Registry[backend.Engine], i inferenceSection) (backend.Engine, error) {
	var pool []backend.Weighted
	for n, e := range i.endpoints() {
		key := ""
		if e.APIKeyEnv != "" {
			if key = os.Getenv(e.APIKeyEnv); key == "" {
				return nil, usagef("inference.endpoints[%d].api_key_env: %s is not set", n, e.APIKeyEnv)
			}
		}
		settings, err := json.Marshal(map[string]string{"url": e.URL, "api_key": key})
		if err != nil {
			return nil, err
		}
		engine, err := kinds.Open(polar.Spec{Kind: i.Engine, Config: settings})
		if err != nil {
			return nil, usagef("engine: %w", err)
		}
		if len(i.endpoints()) == 1 {
			return engine, nil
		}
		pool = append(pool, backend.Weighted{Name: e.URL, Engine: engine, Weight: e.Weight})
	}
	engine, err := backend.NewPool(pool)
	if err != nil {
		return nil, usagef("inference.endpoints: %w", err)
	}
	return engine, nil
}

// describe names the servers for a person.
func (i inferenceSection) describe() string {
	all := i.endpoints()
	if len(all) == 1 {
		return fmt.Sprintf("%s (%s)", all[0].URL, i.Engine)
	}
	return fmt.Sprintf("%s and %d more (%s)", all[0].URL, len(all)-1, i.Engine)
}
