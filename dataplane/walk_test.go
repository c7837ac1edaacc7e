package dataplane_test

import (
	"fmt"
	"testing"

	"subctl/dataplane/dataplanetest"
)

// Any plan can follow any other, and the empty plan leaves nothing behind. The same walk
// over a real kernel is in dataplane/kernel.
func TestWalk(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dataplanetest.Walk(t, &dataplanetest.Fake{}, seed, 100)
			dataplanetest.WalkCNF(t, &dataplanetest.Fake{}, seed, 100)
		})
	}
}
