package rest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The entries of lists and tables are counted; what is neither has none.
func TestEntries(t *testing.T) {
	for text, want := range map[string]int{
		`[]`:                     0,
		`[{}]`:                   1,
		` [{"a":[1,2]}, 7, [8]]`: 3,
		`{"main":{"item":[{"metric":"0"},{}]},"41":{"item":[{}]}}`: 3,
		`{}`:          0,
		`{"main":{}}`: 0,
		`"x"`:         0,
		`7`:           0,
		``:            0,
		"[" + strings.Repeat(`{"a":{"b":"c"}},`, MaxEntries) + "{}]": MaxEntries + 1,
	} {
		require.Equal(t, want, Entries([]byte(text)), "%.60s", text)
	}
}
