//go:build linux

package nstest

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKernel says, with -v, what the kernel has; where it is required it must have it.
func TestKernel(t *testing.T) {
	for _, feature := range slices.Sorted(maps.Keys(probes)) {
		t.Run(feature, func(t *testing.T) {
			Kernel(t, feature)
			t.Log("the kernel has it")
		})
	}
}

func TestKernelSkips(t *testing.T) {
	Root(t)
	probes["certain"] = "true"
	probes["impossible"] = "false"
	t.Cleanup(func() {
		delete(probes, "certain")
		delete(probes, "impossible")
	})
	for _, test := range []struct{ required, feature, want string }{
		{"", "certain", ""},
		{"certain", "certain", ""},
		{"", "impossible", "skipped"},
		{"certain", "impossible", "skipped"},
		{"impossible", "impossible", "failed"},
		{"certain,impossible", "impossible", "failed"},
		{"impossible", "certain", ""},
		{"", "unknown", "failed"},
		{"unknown", "certain", "failed"},
	} {
		t.Run(test.required+"/"+test.feature, func(t *testing.T) {
			t.Setenv(RequireKernel, test.required)
			r := &recorder{TB: t}
			func() {
				defer func() { _ = recover() }()
				Kernel(r, test.feature)
			}()
			require.Equal(t, test.want, r.how)
		})
	}
}
