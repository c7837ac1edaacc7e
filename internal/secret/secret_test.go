package secret_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/secret"
)

// Whatever prints a secret, alone or inside of something else, prints the placeholder.
func TestNeverPrinted(t *testing.T) {
	const text = "sesame-open"
	key := secret.Key([]byte(strings.Repeat("k", 32)))
	inside := struct {
		Token secret.Bytes
		Key   secret.Key
	}{secret.Bytes(text), key}
	var out strings.Builder
	for _, v := range []any{inside.Token, key, inside, &inside, []any{inside.Token, key}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%c", "%U"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		b, err := json.Marshal(v)
		require.NoError(t, err)
		out.Write(b)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", v)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", v)
	}
	require.NotContains(t, out.String(), text)
	require.NotContains(t, out.String(), "kkk")
	require.NotContains(t, out.String(), fmt.Sprintf("%x", text)[:8])
	require.NotContains(t, out.String(), "6b6b6b")
	require.NotContains(t, out.String(), "107 107")
	require.Contains(t, out.String(), secret.Hidden)
}
