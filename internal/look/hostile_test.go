package look

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/printer"
	"subctl/internal/progress"
)

// What clusters say reaches the terminal without the characters that steer it.
func TestShowHostile(t *testing.T) {
	const hostile = "up\x1b]0;owned\a"
	s := Site{Name: "west", Submariner: &v1alpha1.Submariner{}}
	v := View[string]{
		Rows:    func(Site) []string { return []string{hostile} },
		Text:    func(r string) string { return r + "\n" },
		Trouble: func(_ Site, rows []string) []string { return []string{rows[0] + "\nmore"} },
	}
	p := NewPanel(v.Section())
	data, err := p.draw([]Site{s}, false, printer.Table)
	require.NoError(t, err)
	require.Equal(t, "up?]0;owned?\n", data)

	var notes bytes.Buffer
	require.Error(t, p.judge([]Site{s}, progress.New(&notes)))
	require.Equal(t, " ⚠ cluster \"west\": up?]0;owned?\n   more\n", notes.String())
}
