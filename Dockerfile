# The image of subctl's agents: the static binaries subctl and wireguard-go, and strongSwan, iptables, ipset and nft as Debian built them
# (scripts/image/rootfs.sh says what). `make image` writes the same content without Docker.
#
#   docker build -t localhost/subctl:dev --build-arg VERSION=$(git describe --tags --always) .
FROM golang:1.26-bookworm AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
COPY go.mod go.sum ./
RUN go mod download
RUN go build -ldflags "-s -w" -o /wireguard-go golang.zx2c4.com/wireguard
COPY . .
ARG VERSION=devel
RUN go build -ldflags "-s -w -X subctl/internal/version.Version=$VERSION" -o /subctl .

FROM debian:12-slim AS base
RUN apt-get update && apt-get install -y --no-install-recommends \
	iptables ipset nftables charon-systemd libcharon-extra-plugins libstrongswan-standard-plugins
COPY scripts/image/rootfs.sh /
COPY --from=build /wireguard-go /
RUN /rootfs.sh /rootfs /wireguard-go

FROM scratch
COPY --from=base /rootfs /
COPY --from=build /subctl /usr/local/bin/subctl
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENTRYPOINT ["/usr/local/bin/subctl"]
