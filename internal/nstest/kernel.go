//go:build linux

package nstest

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// RequireKernel is the environment variable that lists the features that the kernel must
// have, separated by commas. A test that needs one of them then fails instead of being
// skipped. "make test-kernel" sets it in its guest, so that no test can vanish there.
const RequireKernel = "SUBCTL_REQUIRE_KERNEL"

// probes are the features that not every kernel has, each with a command that creates an
// object of the feature. They use ip and nft, not the code that is tested.
var probes = map[string]string{
	"wireguard": "ip link add wg0 type wireguard",
	"esp": "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000 mode tunnel aead 'rfc4106(gcm(aes))' 0x" +
		strings.Repeat("5a", 20) + " 128",
	"xfrm-interface": "ip link add xfrm0 type xfrm dev lo if_id 1",
}

// Kernel skips the test unless the kernel itself has the feature: "wireguard", "esp"
// or "xfrm-interface". Tests of the userspace implementations must not call it.
func Kernel(t testing.TB, feature string) {
	t.Helper()
	required := strings.FieldsFunc(os.Getenv(RequireKernel), func(r rune) bool { return r == ',' })
	for _, f := range append(required, feature) {
		if probes[f] == "" {
			t.Fatalf("%s: there is no kernel feature %q: known are %v", t.Name(), f, slices.Sorted(maps.Keys(probes)))
		}
	}
	said, err := New(t, "probe").Try(probes[feature])
	if err == nil {
		return
	}
	if slices.Contains(required, feature) {
		t.Fatalf("%s: the kernel has no %s, and %s forbids skipping: %s: %s", t.Name(), feature, RequireKernel,
			probes[feature], said)
	}
	t.Skipf("the kernel has no %s: %s: %s", feature, probes[feature], said)
}
