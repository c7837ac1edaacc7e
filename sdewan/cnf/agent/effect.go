package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"subctl/sdewan/cnf"
)

// Limits of the list of objects without effect in a status, in bytes. The controller keeps 32 KiB
// of the whole status.
const (
	maxIneffective = 20 << 10 // of all names and reasons, and entryBytes for each object
	entryBytes     = 40       // of JSON around a name and a reason
	maxReason      = 400      // of a reason
)

// settleTime is for how long the report waits for the pass after a change. A pass with 10,000 rules
// takes less than a second.
const settleTime = 4 * time.Second

type effectStatus struct {
	// Applied reports whether the kernel holds what the REST API has received. What it refuses may
	// contain secrets of tunnels, and is in the log alone.
	Applied bool `json:"applied"`
	// Awaiting is rest.Config.Awaiting.
	Awaiting    bool                `json:"awaiting"`
	Ineffective []ineffectiveStatus `json:"no_effect"` // the first ones, as many as maxIneffective allows
	Count       int                 `json:"no_effect_count"`
}

// ineffectiveStatus is about an object that has no effect, or of which a part has none.
type ineffectiveStatus struct {
	Collection string `json:"collection"`
	Name       string `json:"name"`
	Reason     string `json:"reason"`
	Minor      bool   `json:"minor,omitempty"` // cnf.Line.Minor
}

// settle waits until a pass has ended that began after the last change, for a limited time.
func (a *Agent) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		a.mu.Lock()
		done := a.seen == a.changes.Load()
		ended := a.ended
		a.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
		}
	}
}

// effect returns the report about objects without effect. Mistakes come first, then settings that
// this CNF does not have.
func (a *Agent) effect() effectStatus {
	a.mu.Lock()
	applied := a.ready && a.err == nil && a.seen == a.changes.Load()
	report := slices.Clone(a.report)
	a.mu.Unlock()
	slices.SortStableFunc(report, func(x, y cnf.Line) int {
		switch {
		case x.Minor == y.Minor:
			return 0
		case y.Minor:
			return -1
		}
		return 1
	})
	s := effectStatus{
		Applied:     applied,
		Awaiting:    a.Config().Awaiting,
		Ineffective: []ineffectiveStatus{},
		Count:       len(report),
	}
	size := 0
	for _, l := range report {
		reason := strings.ToValidUTF8(l.Message[:min(len(l.Message), maxReason)], "")
		if size += entryBytes + len(l.Collection) + len(l.Name) + len(reason); size > maxIneffective {
			break
		}
		s.Ineffective = append(s.Ineffective, ineffectiveStatus{l.Collection, l.Name, reason, l.Minor})
	}
	return s
}
