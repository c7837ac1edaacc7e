package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// The pre-shared key is read from the Secret that the Submariner names, and missed where
// it is not.
func TestPreSharedKey(t *testing.T) {
	for _, test := range []struct{ named, mounted, missing string }{
		{"", "submariner-ipsec-psk", ""},
		{"our-psk", "our-psk", ""},
		{"our-psk", "submariner-ipsec-psk", "Secret our-psk in namespace submariner-operator has the key psk"},
		{"", "", "Secret submariner-ipsec-psk in namespace submariner-operator has the key psk"},
	} {
		t.Run(test.named+" "+test.mounted, func(t *testing.T) {
			w := gateway(t)
			w.gateway.secrets = t.TempDir()
			dir := filepath.Join(w.gateway.secrets, test.mounted)
			require.NoError(t, os.MkdirAll(dir, 0o700))
			if test.mounted != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "psk"), []byte("0123456789abcdef"), 0o600))
			}
			sub := get(t, w, &v1alpha1.Submariner{}, v1alpha1.SubmarinerName)
			sub.Spec.CeIPSecPSKSecret = test.named
			require.NoError(t, w.Client.Update(t.Context(), sub))
			w.run(t)
			c := meta.FindStatusCondition(get(t, w, &submarinerv1.Gateway{}, "gw").Status.Conditions, ConditionPreSharedKey)
			if test.missing == "" {
				require.Nil(t, c)
				return
			}
			require.Contains(t, c.Message, test.missing)
			require.NotContains(t, c.Message, "0123")
		})
	}
}
