package controller

import (
	"encoding/json"
	"strings"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
)

const (
	// of a pod, in bytes of JSON: sdewan.MaxPods of them fit in an object of 1.5 MiB, in which each
	// quote takes two bytes
	maxStatus = 32 << 10
	maxBrief  = maxStatus / 4 // of a module whose report is shortened, in bytes of JSON, about
	maxError  = 1 << 10       // of a module, in bytes of JSON
)

// report is the answer of a module. Count is the number of entries in a status that is too long to
// be kept.
type report struct {
	restclient.Module
	Count int `json:"count,omitempty"`

	brief bool // its details have been left out
}

// shorten leaves out details, or, where there is nothing else to leave out, everything except the
// number of entries.
func (r *report) shorten() {
	if brief := briefs[r.Name]; brief != nil && !r.brief {
		if b, err := brief(r.Status); err == nil {
			r.Status = b
			r.brief = true
			return
		}
	}
	r.Count = rest.Entries(r.Status)
	r.Status = json.RawMessage(batch.TooLong)
}

// briefs have the reports without which it is not known whether a CNF works, and return the same
// without details. They have no counters, or what fits would change each time.
var briefs = map[string]func(json.RawMessage) (json.RawMessage, error){
	"ipsec": func(status json.RawMessage) (json.RawMessage, error) {
		var t rest.Tunnels
		if err := json.Unmarshal(status, &t); err != nil {
			return nil, err
		}
		return json.Marshal(t.Shorten(maxBrief))
	},
	"wan": func(status json.RawMessage) (json.RawMessage, error) {
		var wan struct {
			Interfaces map[string]struct {
				Status string `json:"status"`
			} `json:"interfaces"`
		}
		if err := json.Unmarshal(status, &wan); err != nil {
			return nil, err
		}
		return json.Marshal(wan)
	},
	"effect": func(status json.RawMessage) (json.RawMessage, error) {
		var effect map[string]json.RawMessage
		var list []json.RawMessage
		if err := json.Unmarshal(status, &effect); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(effect["no_effect"], &list); err != nil {
			return nil, err
		}
		n := 0
		for size := 0; n < len(list) && size+len(list[n]) < maxBrief; n++ {
			size += len(list[n]) + 1
		}
		var err error
		if effect["no_effect"], err = json.Marshal(list[:n]); err != nil {
			return nil, err
		}
		return json.Marshal(effect)
	},
}

// shortened returns what modules report as JSON. If it is too long, the longest reports are without
// details, or have only the numbers of their entries.
func shortened(all []restclient.Module) string {
	modules := make([]report, len(all))
	for i, m := range all {
		modules[i].Module = m
		if len(m.Status) > maxStatus {
			modules[i].shorten()
		}
		if len(m.Error) > maxError {
			modules[i].Error = json.RawMessage(batch.TooLong)
		}
	}
	for {
		b, err := json.Marshal(modules)
		if err != nil {
			return "" // what was decoded can be encoded
		}
		if len(b) <= maxStatus {
			return strings.ToValidUTF8(string(b), "?") // or it would grow sixfold on its way
		}
		longest := longestOf(modules, func(r report) bool { return !r.brief })
		if longest < 0 {
			longest = longestOf(modules, func(report) bool { return true })
		}
		if longest < 0 {
			return "" // long names
		}
		modules[longest].shorten()
	}
}

// longestOf returns the place of the longest report that can be shortened, of some; -1 if there is
// none.
func longestOf(modules []report, of func(report) bool) int {
	longest := -1
	for i, m := range modules {
		if of(m) && len(m.Status) > len(batch.TooLong) &&
			(longest < 0 || len(m.Status) > len(modules[longest].Status)) {
			longest = i
		}
	}
	return longest
}
