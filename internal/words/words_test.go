package words_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/words"
)

func TestNearest(t *testing.T) {
	names := []string{"context", "contexts", "node", "output"}
	for name, want := range map[string]string{
		"contxt": "context", "context": "context", "contextss": "contexts", "nod": "node", "out": "output",
		"x": "", "frobnicate": "", "": "",
	} {
		require.Equal(t, want, words.Nearest(name, names), name)
	}
	require.Equal(t, `; did you mean "context"?`, words.Meant("contxt", names))
	require.Empty(t, words.Meant("frobnicate", names))
}

func TestList(t *testing.T) {
	require.Equal(t, "a, b", words.List([]string{"a", "b"}))
	require.Equal(t, "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more",
		words.List([]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}))
	require.Equal(t, "1 pair, 2 pairs", words.Count(1, "pair")+", "+words.Count(2, "pair"))
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                            "0 seconds",
		400 * time.Millisecond:       "0 seconds",
		-time.Second:                 "0 seconds",
		time.Second:                  "1 second",
		90 * time.Second:             "1 minute 30 seconds",
		5 * time.Minute:              "5 minutes",
		time.Hour:                    "1 hour",
		90 * time.Minute:             "1 hour 30 minutes",
		24 * time.Hour:               "1 day",
		49*time.Hour + 2*time.Second: "2 days 1 hour 2 seconds",
	} {
		require.Equal(t, want, words.Duration(d))
	}
	require.Equal(t, "1 minute 2 seconds ago", words.Ago(62*time.Second))
	require.Equal(t, "1 hour 1 minute ago", words.Ago(time.Hour+62*time.Second))
}
