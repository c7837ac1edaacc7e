package words_test

import (
	"testing"

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
	require.Equal(t, "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more", words.List([]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}))
	require.Equal(t, "1 pair, 2 pairs", words.Count(1, "pair")+", "+words.Count(2, "pair"))
}
