package natdiscovery

import (
	"bytes"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

var (
	key     = Key{1}
	request = Request{
		Number:   math.MaxUint64,
		Sender:   Endpoint{"east", "submariner-cable-east-10-0-0-1"},
		Receiver: Endpoint{"west", "submariner-cable-west-10-0-0-2"},
		Src:      netip.MustParseAddrPort("10.0.0.1:4490"),
		Dst:      netip.MustParseAddrPort("192.0.2.2:4490"),
		Cookie:   NoCookie,
	}
	response = Response{
		Number:      7,
		Type:        NATDetected,
		Sender:      request.Receiver,
		Receiver:    request.Sender,
		SrcIPNAT:    true,
		SrcPortNAT:  true,
		DstIPNAT:    true,
		ReceivedSrc: netip.MustParseAddrPort("198.51.100.1:61234"),
		Size:        1472,
		Cookie:      1,
	}
)

func TestRoundTrip(t *testing.T) {
	for _, k := range []Key{{}, key} {
		for _, r := range []Request{{}, {Number: 1}, request, {Src: netip.AddrPortFrom(netip.Addr{}, 4490)}} {
			m, err := Parse(r.Encode(0, k))
			require.NoError(t, err)
			require.Equal(t, r, *m.Request)
			require.Nil(t, m.Response)
			require.Equal(t, k == key, m.Authentic(key))
		}
		for _, r := range []Response{{}, response, {Type: Malformed}} {
			m, err := Parse(r.Encode(k))
			require.NoError(t, err)
			require.Equal(t, r, *m.Response)
			require.Nil(t, m.Request)
			require.Equal(t, k == key, m.Authentic(key))
		}
	}
}

// Every size can be made, from a few bytes more than the least on.
func TestPadding(t *testing.T) {
	for _, k := range []Key{{}, key} {
		least := len(request.Encode(0, k))
		require.Less(t, least, 300)
		for _, size := range []int{least + 6, least + 7, 300, 301, 576, 1472, 8972, 16383, 16384, 20000, MaxSize} {
			b := request.Encode(size, k)
			require.Len(t, b, size)
			m, err := Parse(b)
			require.NoError(t, err)
			require.Equal(t, request, *m.Request)
			require.Equal(t, k == key, m.Authentic(key))
		}
		for size := range least + paddingField {
			require.Len(t, request.Encode(size, k), least)
		}
	}
}

func TestAuthentic(t *testing.T) {
	b := request.Encode(400, key)
	for i := range b {
		forged := bytes.Clone(b)
		forged[i] ^= 1
		m, err := Parse(forged)
		require.False(t, err == nil && m.Authentic(key), "byte %d was changed", i)
	}
	m, err := Parse(b)
	require.NoError(t, err)
	require.False(t, m.Authentic(Key{2}))
	require.False(t, m.Authentic(Key{}))
	m, err = Parse(request.Encode(0, Key{}))
	require.NoError(t, err)
	require.False(t, m.Authentic(Key{}), "no key is no authentication")
}

// upstream is the protocol as protoc would have it, made of the facts alone.
func upstream(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	type typ = descriptorpb.FieldDescriptorProto_Type
	field := func(name string, n int32, kind typ, of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{
			Name:   proto.String(name),
			Number: proto.Int32(n),
			Type:   kind.Enum(),
			Label:  descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}
		if of != "" {
			f.TypeName = proto.String("." + of)
		}
		return f
	}
	const (
		i32   = descriptorpb.FieldDescriptorProto_TYPE_INT32
		u64   = descriptorpb.FieldDescriptorProto_TYPE_UINT64
		str   = descriptorpb.FieldDescriptorProto_TYPE_STRING
		bool_ = descriptorpb.FieldDescriptorProto_TYPE_BOOL
		msg   = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
		enum  = descriptorpb.FieldDescriptorProto_TYPE_ENUM
	)
	message := func(name string, fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: proto.String(name), Field: fields}
	}
	values := &descriptorpb.EnumDescriptorProto{Name: proto.String("ResponseType")}
	for i, name := range typeNames {
		values.Value = append(values.Value,
			&descriptorpb.EnumValueDescriptorProto{Name: proto.String(name), Number: proto.Int32(int32(i))})
	}
	outer := message("Message", field("version", 1, i32, ""), field("request", 2, msg, "Request"),
		field("response", 3, msg, "Response"))
	outer.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: proto.String("message")}}
	outer.Field[1].OneofIndex = proto.Int32(0)
	outer.Field[2].OneofIndex = proto.Int32(0)
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("natdiscovery.proto"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			outer,
			message("Request", field("request_number", 1, u64, ""), field("sender", 2, msg, "EndpointDetails"),
				field("receiver", 3, msg, "EndpointDetails"), field("using_src", 4, msg, "IPPortPair"),
				field("using_dst", 5, msg, "IPPortPair")),
			message("Response", field("request_number", 1, u64, ""), field("response", 2, enum, "ResponseType"),
				field("sender", 3, msg, "EndpointDetails"), field("receiver", 4, msg, "EndpointDetails"),
				field("src_ip_nat_detected", 5, bool_, ""), field("src_port_nat_detected", 6, bool_, ""),
				field("dst_ip_nat_detected", 7, bool_, ""), field("received_src", 8, msg, "IPPortPair")),
			message("IPPortPair", field("IP", 1, str, ""), field("port", 2, i32, "")),
			message("EndpointDetails", field("cluster_id", 1, str, ""), field("endpoint_id", 2, str, "")),
		},
		EnumType: []*descriptorpb.EnumDescriptorProto{values},
	}, nil)
	require.NoError(t, err)
	return file.Messages().ByName("Message")
}

// What a protobuf library reads of our messages is what we meant, and what it writes
// we read.
func TestProtobufAgrees(t *testing.T) {
	kind := upstream(t)
	for _, ours := range [][]byte{
		request.Encode(0, Key{}),
		request.Encode(600, key),
		response.Encode(Key{}),
		response.Encode(key),
	} {
		theirs := dynamicpb.NewMessage(kind)
		require.NoError(t, proto.Unmarshal(ours, theirs))
		again, err := proto.Marshal(theirs)
		require.NoError(t, err)
		m, err := Parse(again)
		require.NoError(t, err)
		want, err := Parse(ours)
		require.NoError(t, err)
		require.Equal(t, want.Request, m.Request)
		require.Equal(t, want.Response, m.Response)

		theirs.SetUnknown(nil)
		text := theirs.String()
		for _, field := range []string{"cluster_id:\"east\"", "endpoint_id:\"submariner-cable-west-10-0-0-2\""} {
			require.Contains(t, strings.ReplaceAll(text, ": ", ":"), field)
		}
	}
	get := func(m protoreflect.Message, path ...protoreflect.Name) protoreflect.Value {
		for _, name := range path[:len(path)-1] {
			m = m.Get(m.Descriptor().Fields().ByName(name)).Message()
		}
		return m.Get(m.Descriptor().Fields().ByName(path[len(path)-1]))
	}
	m := dynamicpb.NewMessage(kind)
	require.NoError(t, proto.Unmarshal(request.Encode(900, key), m))
	require.EqualValues(t, 1, get(m, "version").Int())
	require.EqualValues(t, request.Number, get(m, "request", "request_number").Uint())
	require.Equal(t, "10.0.0.1", get(m, "request", "using_src", "IP").String())
	require.EqualValues(t, 4490, get(m, "request", "using_dst", "port").Int())
	m = dynamicpb.NewMessage(kind)
	require.NoError(t, proto.Unmarshal(response.Encode(key), m))
	require.EqualValues(t, NATDetected, get(m, "response", "response").Enum())
	require.True(t, get(m, "response", "dst_ip_nat_detected").Bool())
	require.EqualValues(t, 61234, get(m, "response", "received_src", "port").Int())
}

func TestParseRefuses(t *testing.T) {
	tag := func(n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), v)
	}
	addr := func(ip string, port uint64) []byte {
		return tag(
			fieldRequest,
			tag(
				fieldSrc,
				append(
					tag(fieldIP, []byte(ip)),
					protowire.AppendVarint(protowire.AppendTag(nil, fieldPort, protowire.VarintType), port)...),
			),
		)
	}
	name := func(s string) []byte { return tag(fieldRequest, tag(fieldSender, tag(fieldCluster, []byte(s)))) }
	for _, test := range []struct {
		b    []byte
		want string
	}{
		{nil, "either a request or a response"},
		{append(request.Encode(0, Key{}), response.Encode(Key{})...), "either a request or a response"},
		{make([]byte, MaxSize+1), "at most 65507"},
		{[]byte{0xff}, "tag"},
		{[]byte{0x12, 0xff}, "field 2"},
		{append(name("a"), name("b")...), "twice"},
		{append(request.Encode(0, Key{}), 0x08, 1), "occurs twice"},
		{append(request.Encode(0, key), 0x08, 1), "after the authentication code"},
		{append(request.Encode(0, key), tag(102, nil)...), "after the authentication code"},
		{
			protowire.AppendVarint(protowire.AppendTag(nil, fieldRequest, protowire.VarintType), 1),
			"neither a message nor bytes",
		},
		{addr("10.0.0.1", 65536), "more than 65535"},
		{addr("10.0.0.256", 1), "not an IPv4 address"},
		{addr("::1", 1), "not an IPv4 address"},
		{addr("010.000.000.0001", 1), "at most 15"},
		{name(strings.Repeat("x", 254)), "at most 253"},
		{name("\xff"), "UTF-8"},
		{
			tag(fieldResponse, protowire.AppendVarint(protowire.AppendTag(nil, fieldType, protowire.VarintType), 5)),
			"more than 4",
		},
		{
			tag(fieldResponse,
				protowire.AppendVarint(protowire.AppendTag(nil, fieldSrcIPNAT, protowire.VarintType), 2)),
			"more than 1",
		},
		{
			tag(fieldResponse,
				protowire.AppendVarint(protowire.AppendTag(nil, fieldSize, protowire.VarintType), MaxSize+1)),
			"more than",
		},
	} {
		_, err := Parse(test.b)
		require.ErrorContains(t, err, test.want)
	}
	var many []byte
	for n := protowire.Number(200); n < 200+maxFields+1; n++ {
		many = append(many, tag(n, nil)...)
	}
	_, err := Parse(many)
	require.ErrorContains(t, err, "more than 32 fields")
	_, err = Parse(append(request.Encode(0, Key{}), tag(200, []byte("of a later version"))...))
	require.NoError(t, err)
}

// FuzzParse: whatever arrives, what we understood of it is what we would have sent.
func FuzzParse(f *testing.F) {
	for _, b := range [][]byte{
		nil,
		request.Encode(0, Key{}),
		request.Encode(300, key),
		response.Encode(Key{}),
		response.Encode(key),
		Request{}.Encode(0, Key{}),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			if m.Request != nil || m.Response != nil {
				t.Fatalf("an error, and %v", m)
			}
			return
		}
		var again []byte
		if m.Request != nil {
			again = m.Request.Encode(0, Key{})
			from := netip.MustParseAddrPort("192.0.2.1:9")
			a := Answer(Self{Endpoint{"west", "w"}, netip.MustParseAddr("10.0.0.2")}, *m.Request, from, len(b))
			if _, err := Parse(a.Encode(key)); err != nil {
				t.Fatalf("our own answer: %v", err)
			}
		} else {
			again = m.Response.Encode(Key{})
		}
		n, err := Parse(again)
		if err != nil {
			t.Fatalf("%v, of %x, which we made of %x", err, again, b)
		}
		require.Equal(t, m.Request, n.Request)
		require.Equal(t, m.Response, n.Response)
	})
}
