"""EtherCAT frames: sizes, commands, flags (ETG.1000.4, section 5).

A frame is an Ethernet header with type 0x88A4, a header of two bytes (11 bits length, 4 bits type) and datagrams:
command, index, address (4 bytes), length and flags, interrupt, data, working counter.
"""

ETHERTYPE = 0x88A4
ETHERNET_HEADER = 14
#: Offset of the datagrams.
FRAME_HEADER = 16
DATAGRAM_HEADER = 10
WORKING_COUNTER = 2
#: Longest and shortest frame, without checksum.
FRAME_MAX, FRAME_MIN = 1514, 60
TYPE_COMMANDS = 1

NOP, APRD, APWR, APRW, FPRD, FPWR, FPRW, BRD, BWR, BRW, LRD, LWR, LRW, ARMW, FRMW = range(15)

LENGTH_MASK = 0x07FF
CIRCULATING = 0x4000
MORE = 0x8000
#: Bit of the first byte of the source address, set by slaves that processed a frame (locally administered).
PROCESSED = 0x02
