package parts

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
)

// The pre-shared key is read from the Secret that the Submariner names. If it is not
// there, that is reported, with what to do.
func TestPreSharedKey(t *testing.T) {
	for _, test := range []struct{ named, mounted, missing string }{
		{"", "submariner-ipsec-psk", ""},
		{"our-psk", "our-psk", ""},
		{"our-psk", "submariner-ipsec-psk", "Secret our-psk in namespace submariner-operator has the key psk"},
		{"", "", "Secret submariner-ipsec-psk in namespace submariner-operator has the key psk"},
	} {
		t.Run(test.named+" "+test.mounted, func(t *testing.T) {
			k := newKeyRing(Options{Secrets: t.TempDir()})
			if test.mounted != "" {
				mount(t, k, test.mounted, "0123456789abcdef")
			}
			s := submariner(test.named)
			require.NoError(t, k.Observe(&s))
			require.NotNil(t, s.Keys)
			if test.missing == "" {
				require.NoError(t, s.KeysErr)
				require.Equal(t, "0123456789abcdef", string(s.Keys.PSK))
				return
			}
			require.ErrorContains(t, s.KeysErr, test.missing)
			require.NotContains(t, s.KeysErr.Error(), "0123")
		})
	}
}

// A key that changes while the agent runs is followed.
func TestKeyRingNudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		triggers := 0
		k := newKeyRing(Options{Secrets: t.TempDir(), Trigger: func() { triggers++ }})
		mount(t, k, "submariner-ipsec-psk", "0123456789abcdef")
		s := submariner("")
		require.NoError(t, k.Observe(&s))
		stop := start(t, k)
		pass(3 * rereadKeys)
		require.Zero(t, triggers)
		mount(t, k, "submariner-ipsec-psk", "fedcba9876543210")
		pass(3 * rereadKeys)
		require.Equal(t, 1, triggers)
		stop()
	})
}

// submariner returns the snapshot of a cluster whose pre-shared key is in a Secret.
func submariner(secret string) role.Snapshot {
	return role.NewSnapshot("gw",
		&v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "east", CeIPSecPSKSecret: secret}})
}

// mount writes a pre-shared key as the kubelet would.
func mount(t *testing.T, k *keyRing, secret, psk string) {
	t.Helper()
	dir := filepath.Join(k.dir, secret)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "psk"), []byte(psk), 0o600))
}
