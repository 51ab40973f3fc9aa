"""Silence the network card of a container, or reconnect it: `python arp_off.py on` or `off`.

The Docker engine passes this file to Python in a container beside the host, which has the necessary rights. The card
gets another hardware address and stops asking and answering by ARP. So no packet reaches it any more, and none of its
packets reaches others. Its network address, its routes and all connections stay. (`docker network disconnect` would
remove them, and programs would get an error at once, instead of silence.)
"""

import fcntl
import socket
import struct
import sys

_CARD = b"eth0"
_GET_FLAGS, _SET_FLAGS, _GET_ADDRESS, _SET_ADDRESS = 0x8913, 0x8914, 0x8927, 0x8924  # SIOC[GS]IF{FLAGS,HWADDR}
_NO_ARP = 0x80  # IFF_NOARP
_FLAGS, _ADDRESS = "16sH22x", "16sH6s16x"  # struct ifreq


def silence(wanted: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        card = any_socket.fileno()
        _, flags = struct.unpack(_FLAGS, fcntl.ioctl(card, _GET_FLAGS, struct.pack(_FLAGS, _CARD, 0)))
        if bool(flags & _NO_ARP) == wanted:
            return
        _, family, address = struct.unpack(
            _ADDRESS, fcntl.ioctl(card, _GET_ADDRESS, struct.pack(_ADDRESS, _CARD, 0, b""))
        )
        other = bytes([address[0], address[1] ^ 0xFF, *address[2:]])  # the next call restores it
        fcntl.ioctl(card, _SET_FLAGS, struct.pack(_FLAGS, _CARD, flags ^ _NO_ARP))
        fcntl.ioctl(card, _SET_ADDRESS, struct.pack(_ADDRESS, _CARD, family, other))


if __name__ == "__main__":
    silence(sys.argv[1] == "on")
