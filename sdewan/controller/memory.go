package controller

import (
	"context"
	"crypto/sha256"
	"fmt"

	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
)

// memory is the controller's record of a pod, kept as long as the pod's containers run. All of it
// can be lost: see owes.
type memory struct {
	// owed are the services that must be restarted, because objects have changed since the last
	// restart; false: it is known that none have.
	owed map[string]bool
	// started is true as soon as it is known that a service was started: before that, the CNF may
	// forward nothing.
	started bool
	// silent is true as soon as it is known that the CNF does not report what its objects effect.
	silent bool
	// reports is true as soon as it is known that it does.
	reports bool
	// dropped are the NATs that the pod returns, but that a restart of the firewall has put out of
	// effect.
	dropped map[string]bool
	// answers are the objects that the pod returns otherwise than they were written.
	answers map[id]answer
	// refusals are the last ones of the objects that the pod has, or should have.
	refusals map[id]refusal
	// accepted is how many changes the pod has accepted, and changes how many it had when it
	// accepted one of a sort last. tries is how many it has refused.
	accepted, tries int
	changes         map[change]int
	// doubts are what the CNF refused or failed to change, as it was before; the zero doubt for
	// what it failed to create. OpenWrt may have deleted it, and a CNF that did not answer may
	// change it later.
	doubts map[id]doubt
}

// id names an object on a CNF.
type id struct {
	collection *rest.Collection
	name       string
}

// change is a sort of changes: of a collection, and whether objects were removed.
type change struct {
	collection *rest.Collection
	removal    bool
}

// answer has digests of an object, and of what the pod makes of it.
type answer struct{ sent, got [sha256.Size]byte }

// doubt is what an object was before a change of it failed: it can be large, so this is a digest.
type doubt struct {
	existed bool
	was     [sha256.Size]byte
}

func doubtOf(before restclient.Item) doubt {
	if before.Name == "" {
		return doubt{}
	}
	return doubt{true, before.Digest()}
}

func newMemory() *memory {
	return &memory{
		owed:     map[string]bool{},
		dropped:  map[string]bool{},
		answers:  map[id]answer{},
		refusals: map[id]refusal{},
		changes:  map[change]int{},
		doubts:   map[id]doubt{},
	}
}

// owesAny reports whether a service must be restarted.
func (m *memory) owesAny() bool {
	for _, owed := range m.owed {
		if owed {
			return true
		}
	}
	return false
}

// start makes a CNF forward that awaits its configuration: it has none that a service must be
// restarted for, or another controller wrote it and ended before the restart.
func (m *memory) start(ctx context.Context, c api) error {
	effect, err := c.Effect(ctx)
	if err != nil {
		return fmt.Errorf("reading its status: %w", err)
	}
	if effect.Awaiting {
		if err := c.Restart(ctx, "firewall", nil); err != nil {
			return fmt.Errorf("starting it: %w", err)
		}
	}
	m.started = true
	return nil
}
