package printer_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"subctl/internal/printer"
)

type cable struct {
	Cluster string   `json:"cluster"`
	Subnets []string `json:"subnets"`
	RTT     string   `json:"rtt,omitempty"`
}

var (
	cables = []cable{
		{"west", []string{"10.0.0.0/16", "100.64.0.0/16"}, "1.2ms"},
		{"north-east", []string{"<none> & more"}, ""},
		{"", nil, "404µs"},
	}
	columns = []printer.Column[cable]{
		{Head: "CLUSTER", Cell: func(c cable) string { return c.Cluster }},
		{Head: "RTT avg.", Wide: true, Cell: func(c cable) string { return c.RTT }},
		{Head: "SUBNETS", Max: 16, Cell: func(c cable) string { return strings.Join(c.Subnets, ", ") }},
	}
)

func TestPrint(t *testing.T) {
	for format, want := range map[printer.Format]string{
		printer.Table: `CLUSTER      SUBNETS
west         10.0.0.0/16, 10…
north-east   <none> & more

`,
		printer.Wide: `CLUSTER      RTT avg.   SUBNETS
west         1.2ms      10.0.0.0/16, 100.64.0.0/16
north-east              <none> & more
             404µs
`,
		printer.JSON: `[
  {
    "cluster": "west",
    "subnets": [
      "10.0.0.0/16",
      "100.64.0.0/16"
    ],
    "rtt": "1.2ms"
  },
  {
    "cluster": "north-east",
    "subnets": [
      "<none> & more"
    ]
  },
  {
    "cluster": "",
    "subnets": null,
    "rtt": "404µs"
  }
]
`,
		printer.YAML: `- cluster: west
  rtt: 1.2ms
  subnets:
  - 10.0.0.0/16
  - 100.64.0.0/16
- cluster: north-east
  subnets:
  - <none> & more
- cluster: ""
  rtt: 404µs
  subnets: null
`,
	} {
		t.Run(string(format), func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, printer.Print(&out, format, cables, columns))
			require.Equal(t, want, out.String())
		})
	}
}

// A terminal obeys what another cluster says unless it is cleaned; programs get
// what was said.
func TestHostileCells(t *testing.T) {
	rows := []cable{{Cluster: "ea\x1b[2Jst\n\r\u202e\u009b\x7f\xff é日", Subnets: []string{"10.0.0.0/16"}}}
	for format, want := range map[printer.Format]string{
		printer.Table: "CLUSTER           SUBNETS\nea?[2Jst?????? é日   10.0.0.0/16\n",
		printer.Wide:  "CLUSTER           RTT avg.   SUBNETS\nea?[2Jst?????? é日              10.0.0.0/16\n",
	} {
		var out bytes.Buffer
		require.NoError(t, printer.Print(&out, format, rows, columns))
		require.Equal(t, strings.Join(strings.Fields(want), " "), strings.Join(strings.Fields(out.String()), " "),
			format)
	}
	var out bytes.Buffer
	require.NoError(t, printer.Print(&out, printer.JSON, rows, columns))
	require.Contains(t, out.String(), `ea\u001b[2Jst\n\r`)
	require.Equal(t, "a?\nb?", printer.CleanLines("a\r\nb\x07"))
}

func TestNoRows(t *testing.T) {
	for format, want := range map[printer.Format]string{
		printer.Table: "", printer.Wide: "", printer.JSON: "[]\n", printer.YAML: "[]\n",
	} {
		var out bytes.Buffer
		require.NoError(t, printer.Print(&out, format, nil, columns))
		require.Equal(t, want, out.String(), format)
	}
}

// In a stream, a reader finds the end of each document.
func TestStream(t *testing.T) {
	for format, want := range map[printer.Format]string{
		printer.JSON: "[{\"cluster\":\"west\",\"subnets\":null}]\n[]\n",
		printer.YAML: "---\n- cluster: west\n  subnets: null\n---\n[]\n",
	} {
		var out bytes.Buffer
		for _, rows := range [][]cable{{{Cluster: "west"}}, nil} {
			require.NoError(t, printer.Print(&out, format.Stream(), rows, columns))
		}
		require.Equal(t, want, out.String())
		require.True(t, format.Stream().Structured())
	}
	require.Equal(t, printer.Wide, printer.Wide.Stream())
}

func TestEncodeIsNoTable(t *testing.T) {
	require.ErrorContains(t, printer.Encode(&bytes.Buffer{}, printer.Table, cables), `cannot be encoded as "table"`)
}

func TestFlag(t *testing.T) {
	output := printer.NewFlag(printer.Table, printer.JSON, printer.YAML)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.VarP(output, "output", "o", output.Usage())

	require.Equal(t, printer.Table, output.Format())
	require.Contains(t, flags.FlagUsages(), `-o, --output format   output format: table, json or yaml (default table)`)
	require.EqualError(t, flags.Parse([]string{"-o", "xml"}),
		`invalid argument "xml" for "-o, --output" flag: use table, json or yaml`)
	require.NoError(t, flags.Parse([]string{"-o", "yaml"}))
	require.Equal(t, printer.YAML, output.Format())
}

// A wide column is in every table if the rows need it.
func TestUnless(t *testing.T) {
	columns := []printer.Column[string]{
		{Head: "NAME", Cell: func(s string) string { return s }},
		{
			Head:   "LENGTH",
			Wide:   true,
			Unless: func(rows []string) bool { return len(rows) > 1 },
			Cell:   func(s string) string { return fmt.Sprint(len(s)) },
		},
	}
	for want, rows := range map[string][]string{
		"NAME\na\n":                           {"a"},
		"NAME   LENGTH\na      1\nbb     2\n": {"a", "bb"},
	} {
		var b bytes.Buffer
		require.NoError(t, printer.Print(&b, printer.Table, rows, columns))
		require.Equal(t, want, b.String())
	}
}
