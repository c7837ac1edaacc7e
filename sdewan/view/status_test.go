package view

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	batch "subctl/api/sdewan/v1alpha1"
)

// PodStatuses has a row for each pod that exists. A pod without a report has a problem; the report
// of a deleted pod is left out.
func TestStatusOfPods(t *testing.T) {
	s := batch.CNFStatus{ObjectMeta: metaOf("status", "one", 0)}
	s.Status.Information = []batch.CNFInformation{{Name: "gone", Status: "[]"}, {Name: "a-a", Status: "[]"}}
	v := &View{CNFs: []CNF{aCNF("a", "one"), aCNF("b", "two")}, Statuses: []batch.CNFStatus{s}}
	rows := v.PodStatuses()
	require.Len(t, rows, 2)
	require.Equal(t, "a-a", rows[0].Pod)
	require.Empty(t, rows[0].Problems)
	require.Equal(t, "b-a", rows[1].Pod)
	require.Equal(t, []string{"it has not reported yet: wait, or see subctl sdewan show cnfs"}, rows[1].Problems)
	require.Equal(t, "-", rows[1].Number("conntrack", rows[1].Connections), "not 0: nobody knows")
	text, err := json.Marshal(rows[1])
	require.NoError(t, err)
	require.NotContains(t, string(text), "connections")
	require.NotContains(t, string(text), "neighbours")
}
