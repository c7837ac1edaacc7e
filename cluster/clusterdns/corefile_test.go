package clusterdns

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"
	"github.com/stretchr/testify/require"
)

// pieces are parts of Corefiles, which are complete by themselves.
var pieces = []string{
	".:53 {\n    errors\n    reload\n    forward . /etc/resolv.conf {\n        max_concurrent 1000\n    }\n}",
	"example.org:53 {\r\n\tforward . 192.0.2.1\r\n}", "a.example,\nb.example {\n}", "(snippet) {\n    errors\n}",
	"# a comment { with a brace", "#", "import custom/*.server", "{$ZONE}:53 {\n    log\n}", "\t \r", "", "\n\n",
	"q.example {\n    template IN A {\n        answer \"{{ .Name }} 60 IN A 192.0.2.1 # no comment\"\n    }\n}",
	"# submariner is not here", "# clusterset.local:53 {", "clusterset.local.example {\n}",
}

func randomCorefile(r *rand.Rand) string {
	var out []string
	for range r.IntN(8) {
		out = append(out, pieces[r.IntN(len(pieces))])
	}
	text := strings.Join(out, []string{"\n", "\r\n", "\n\n"}[r.IntN(3)])
	return text + []string{"", "\n", "\r\n", "\n\n", " \t"}[r.IntN(5)]
}

// Adding and removing the block restores any Corefile, and adding it twice is adding it once.
func TestPutAndCut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ours := site{":53", []string{"bind 10.0.0.1"}, ourPlugins}.block("10.96.0.53")
	for i := range 5_000 {
		text := randomCorefile(r)
		before, err := parse(text)
		require.NoError(t, err, "%q", text)
		with, err := put(text, ours)
		require.NoError(t, err, "%q", text)
		after, err := parse(with)
		require.NoError(t, err)
		require.Equal(t, before.servers, slices.Concat(after.servers[:len(after.servers)-1]), "%q", text)
		s, found := after.domain()
		require.True(t, found && s.forwards("10.96.0.53"))
		if i < 500 && len(before.imports) == 0 { // which the parser of CoreDNS would read
			was, err := caddyfile.Parse("Corefile", strings.NewReader(text), nil)
			if err != nil {
				continue // a snippet twice
			}
			is, err := caddyfile.Parse("Corefile", strings.NewReader(with), nil)
			require.NoError(t, err)
			require.Len(t, is, len(was)+1, "%q", text)
			require.Equal(t, []string{"clusterset.local:53"}, is[len(was)].Keys)
		}

		again, err := put(with, ours)
		require.NoError(t, err)
		require.Equal(t, with, again)
		other, err := put(with, usual.block("10.96.0.99"))
		require.NoError(t, err)
		for _, joined := range []string{with, other} {
			rest, err := cut(joined)
			require.NoError(t, err)
			require.Equal(t, text, rest)
		}
	}
}

// What others add before and after the block stays when the block is removed.
func TestCutKeepsEditsOfOthers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1_000 {
		text := randomCorefile(r)
		with, err := put(text, usual.block("10.96.0.53"))
		require.NoError(t, err)
		before := "# edited\nx.example {\n}\n"
		after := "\n# after an empty line\ny.example {\n}\n"
		if !strings.HasSuffix(with, "\n") {
			with = with + "\n"
			text = text + "\n"
		}
		rest, err := cut(before + with + after)
		require.NoError(t, err)
		require.Equal(t, before+text+after, rest)
	}
}

func TestZones(t *testing.T) {
	for key, want := range map[string]bool{
		"clusterset.local": true, "clusterset.local:53": true, "ClusterSet.Local.": true,
		"dns://clusterset.local.:1053": true,
		"tls://clusterset.local":       false, "(clusterset.local)": false,
		"x.clusterset.local": false, "local": false, ".": false,
	} {
		require.Equal(t, want, isDomain(key), key)
	}
}

// The lexer makes the same words of what join returns.
func TestJoinWords(t *testing.T) {
	words := []string{"a", "b c", `d"e`, "", "#f", "g{h"}
	var got []string
	for _, token := range lex(join(words)) {
		got = append(got, token.Text)
	}
	// An empty word is no token.
	isEmpty := func(w string) bool { return w == "" }
	require.Equal(t, slices.DeleteFunc(words, isEmpty), slices.DeleteFunc(got, isEmpty))
}

// Whatever a Corefile holds, either it stays as it is, or all that changes is a complete block
// between two comments.
func TestHostileCorefiles(t *testing.T) {
	ours := usual.block("10.96.0.53")
	main := ".:53 {\n    errors\n}\n"
	refused := map[string]string{
		"end before begin":          main + end + "\n" + begin + "\n",
		"begin alone":               main + begin + "\n",
		"end alone":                 main + end + "\n",
		"nested":                    main + begin + "\n" + begin + "\n" + end + "\n" + end + "\n",
		"twice":                     main + ours + "\n" + ours + "\n",
		"within a block":            ".:53 {\n    errors\n" + ours + "\n}\n",
		"begin within a block":      ".:53 {\n" + begin + "\n}\n" + end + "\n",
		"within a string":           ".:53 {\n    log \"\n" + ours + "\n\"\n}\n",
		"within a string outside":   main + "\"\n" + ours + "\n\" {\n}\n",
		"end within a string":       main + begin + "\nclusterset.local {\n log \"\n" + end + "\n\"\n}\n",
		"another block inside":      main + begin + "\n.:53 {\n}\n" + end + "\n",
		"an import inside":          main + begin + "\nimport /etc/x\n" + end + "\n",
		"a zone more":               main + begin + "\nclusterset.local example.org {\n}\n" + end + "\n",
		"an open string at the end": main + "\"",
		"an open string":            main + "\"a\nb",
		"an open block":             main + "x {",
		"a brace too many":          main + "}",
		"no braces":                 ".:53\nerrors\n",
		"a brace in a key":          ".:53{\n}\n",
		"only a brace":              "{",
		"another block of ours":     "clusterset.local {\n}\n" + main + ours + "\n",
	}
	for name, text := range refused {
		t.Run(name, func(t *testing.T) {
			state, next, err := look(text, ours, "10.96.0.53")
			require.Error(t, err)
			require.Equal(t, text, next)
			require.Contains(t, []State{Unknown, Others}, state)
		})
	}
	kept := map[string]string{
		"binary":       main + "\x00\x01\xff\xfe {\n\x00\n}\n",
		"byte order":   "\ufeff" + main,
		"controls":     main + "\x1b[2J {\n\u202e\n}\n",
		"huge line":    main + "# " + strings.Repeat("x", 1<<20) + "\n",
		"many blocks":  main + strings.Repeat("x {\n}\n", 100_000),
		"deep":         main + "x {\n" + strings.Repeat("a {\n", 50_000) + strings.Repeat("}\n", 50_000) + "}\n",
		"many strings": main + "x {\n" + strings.Repeat("\"a b\" ", 100_000) + "\n}\n",
	}
	for name, text := range kept {
		t.Run(name, func(t *testing.T) {
			state, next, err := look(text, ours, "10.96.0.53")
			require.NoError(t, err)
			require.Equal(t, Missing, state)
			rest, err := cut(next)
			require.NoError(t, err)
			require.True(t, rest == text)
		})
	}
}

// Random texts of what means something in a Corefile: the text is changed as put and cut promise,
// or not at all.
func TestHostileRandomCorefiles(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	parts := []string{
		"{", "}", "\n", "\"", "\\", "#", " ", "a", ",", "clusterset.local", begin, end, "import x", ".:53", "\r",
	}
	ours := usual.block("10.96.0.53")
	changed := 0
	for range 50_000 {
		var b strings.Builder
		for range r.IntN(14) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		text := b.String()
		state, next, err := look(text, ours, "10.96.0.53")
		if next == text {
			continue
		}
		changed++
		require.NoError(t, err)
		require.Contains(t, []State{Missing, Outdated}, state, "%q", text)
		again, _, err := look(next, ours, "10.96.0.53")
		require.NoError(t, err, "%q", text)
		require.Equal(t, Current, again, "%q", text)
		rest, err := cut(next)
		require.NoError(t, err)
		former, err := cut(text)
		require.NoError(t, err)
		require.Equal(t, former, rest, "%q", text)
	}
	require.Greater(t, changed, 300, fmt.Sprint("most texts are refused: ", changed))
}
