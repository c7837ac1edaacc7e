package probe

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a part leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
