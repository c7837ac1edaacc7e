package cmd

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
	s := site{name: "west", submariner: &v1alpha1.Submariner{}}
	v := view[string]{
		rows:    func(site) []string { return []string{hostile} },
		text:    func(r string) string { return r + "\n" },
		trouble: func(_ site, rows []string) []string { return []string{rows[0] + "\nmore"} },
	}
	p := panel{sections: []section{v.section()}}
	data, err := p.draw([]site{s}, false, printer.Table)
	require.NoError(t, err)
	require.Equal(t, "up?]0;owned?\n", data)

	var notes bytes.Buffer
	require.Error(t, p.judge([]site{s}, progress.New(&notes)))
	require.Equal(t, " ⚠ cluster \"west\": up?]0;owned?\n   more\n", notes.String())
}
