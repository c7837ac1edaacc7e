package agent

import (
	"strings"
)

// maxIneffective is the maximum number of objects without effect in a status, and maxReason the maximum size of each
// reason, in bytes.
const maxIneffective, maxReason = 50, 400

type effectStatus struct {
	// Applied reports whether the kernel holds what was planned last. What it refuses may contain secrets of tunnels, and is in the log alone.
	Applied bool `json:"applied"`
	// Awaiting is rest.Config.Awaiting.
	Awaiting    bool                `json:"awaiting"`
	Ineffective []ineffectiveStatus `json:"no_effect"` // at most maxIneffective
	Count       int                 `json:"no_effect_count"`
}

// ineffectiveStatus is about an object that has no effect, or of which a part has none.
type ineffectiveStatus struct {
	Collection string `json:"collection"`
	Name       string `json:"name"`
	Reason     string `json:"reason"`
}

func (a *Agent) effect() effectStatus {
	ready := a.Ready()
	report, err := a.Report()
	s := effectStatus{Applied: ready && err == nil, Awaiting: a.Config().Awaiting, Ineffective: []ineffectiveStatus{}, Count: len(report)}
	for _, l := range report[:min(len(report), maxIneffective)] {
		s.Ineffective = append(s.Ineffective, ineffectiveStatus{l.Collection, l.Name, strings.ToValidUTF8(l.Message[:min(len(l.Message), maxReason)], "")})
	}
	return s
}
